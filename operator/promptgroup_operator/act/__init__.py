"""Writes what a plan wants into the cluster: each write with an outcome of its own.

It may not import `observe`, `passes` or `handlers`.
"""
