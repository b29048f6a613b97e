"""Relays requests: from a client's socket to an engine's and back.

It may not import `explain`, `feed`, `span_export`, or a folder above them.
"""
