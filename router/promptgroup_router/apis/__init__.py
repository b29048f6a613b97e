"""Reads requests and answers of the APIs that clients speak: prompt, session, usage, lengths in tokens.

Does no I/O and reads no clock.
"""
