"""The routing table as an index: the rings that give sessions a home, and how many keys a new table remaps.

Does no I/O and reads no clock. Nothing here changes once it is built.
"""
