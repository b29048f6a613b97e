"""Counts requests that match no declared prompt by their beginning, and detects volatile text in it.

Does no I/O and reads no clock.
"""
