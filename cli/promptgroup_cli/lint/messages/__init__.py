"""Rules on the messages of requests: their order, their beginning, and the breakpoints in them.

Imports: those of `lint`.
"""
