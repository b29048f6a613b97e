"""Decides which replica serves a request, and keeps the books that the decision rests on.

A new policy is added in `policies`. Does no I/O and reads no clock; the time is an argument.
"""
