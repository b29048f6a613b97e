"""Decides which group and revision a request belongs to, and queues it while no replica has capacity for it.

Does no I/O and reads no clock; the time is an argument.
"""
