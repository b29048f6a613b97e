"""Decides which group and revision a request belongs to, and holds it while no replica has room.

Does no I/O and reads no clock; the time is an argument.
"""
