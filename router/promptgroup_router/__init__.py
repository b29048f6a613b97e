"""The router: sends each request to the replica whose cache already holds its beginning.

Imports nothing of the operator and none of its libraries. The folders below are layers: each may import those that
stand under it in `pyproject.toml`, and `lint-imports` holds them to it.
"""
