"""Holds the requests of groups that have no replica on purpose, until one is warm.

Does no I/O and reads no clock; the time is an argument.
"""
