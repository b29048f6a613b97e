"""Isolates the callers of a group from each other's caches by salts."""
