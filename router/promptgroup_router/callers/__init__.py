"""Decides what callers may ask of a group, how much of it, and what they learn of each other.

Does no I/O and reads no clock; the time is an argument.
"""
