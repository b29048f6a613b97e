"""Restricts the callers of a group: their limits, their fields for engines, and the isolation of their caches.

Does no I/O and reads no clock; the time is an argument.
"""
