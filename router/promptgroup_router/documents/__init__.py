"""Reads values of JSON documents that clients and engines have written.

Does no I/O, reads no clock, and imports nothing of the router.
"""
