"""Decides one request from its head to its end, whoever carries its bytes: the router's proxy, or a gateway's.

Does no I/O but logging, and reads no clock; the time and random bytes are arguments.
"""
