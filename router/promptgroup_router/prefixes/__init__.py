"""Tracks prefixes that prompts share, declared or not: their marks, their presence in caches, their cost when cold.

It may not import `policy`, or a folder above it.
"""
