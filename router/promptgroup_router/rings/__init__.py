"""Indexes the routing table: the rings that give each session its home, and the keys that a new table remaps.

Does no I/O and reads no clock. Nothing here changes once it is built.
"""
