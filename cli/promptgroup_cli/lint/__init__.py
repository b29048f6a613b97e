"""Finds what breaks prefix caching in a prompt or in a log of requests. Does no I/O.

An engine finds a prefix in its cache up to the first byte that differs, and no further. One family of rules a file;
`linter` runs them all over prompts, one at a time, and keeps of a log only what is bounded.
"""
