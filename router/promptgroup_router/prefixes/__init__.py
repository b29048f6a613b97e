"""Follows prefixes that prompts share, declared or not: where prompts may part, what caches hold, what cold ones cost.

It may not import `policy`, or a folder above it.
"""
