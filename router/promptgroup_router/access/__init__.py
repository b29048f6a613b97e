"""Authenticates and authorizes the callers of requests by the access rules of each group.

Does no I/O and reads no clock.
"""
