"""Finds what breaks prefix caching in a prompt or in a log of requests. Does no I/O.

An engine's cache matches a prefix up to the first byte that differs, and no further. One file per family of rules;
`linter` runs them all over prompts, one at a time, and its memory is bounded whatever the length of a log.
"""
