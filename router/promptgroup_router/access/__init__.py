"""Decides who asks, and whether they may: callers, credentials, and each group's way to tell them apart.

Does no I/O and reads no clock.
"""
