"""Reads the routing table from a file, or from the API server with a copy on disk.

It may not import `explain`, `proxy`, `span_export`, or a folder above them.
"""
