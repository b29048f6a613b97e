"""Decides which replica serves a request, and holds the records that the decision depends on.

A new policy is added in `policies`. Does no I/O and reads no clock; the time is an argument.
"""
