"""The router sends each request to a replica whose cache already holds the beginning of its prompt.

It imports neither the operator nor the operator's libraries. Its folders are layers: each may import those below it in
`pyproject.toml`, and `lint-imports` enforces that.
"""

__version__ = "0.1.0"
"""The version of the distribution, for images, in which no distribution is installed."""
