"""The response cache: which answers are cacheable, where they are cached, and when they expire.

`flights` calls it and serves cached answers. Does no I/O and reads no clock.
"""
