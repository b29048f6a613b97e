"""Decides when a group has no replica at all, and when a request wakes it. Does no I/O and reads no clock."""
