"""Reads large bodies in a process of its own: while one is parsed, the event loop serves all other requests.

A thread would not do, since the parser holds the interpreter for as long as it runs.

It may not import `response_cache`, or a folder above it.
"""
