"""Reads the routing table from a file, or from the API server with a copy on disk."""
