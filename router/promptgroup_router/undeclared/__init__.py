"""Keeps account of requests that no group declares: what they begin with, and how that beginning varies.

Does no I/O and reads no clock.
"""
