"""The operator: observe a PromptGroup's world, decide what it needs, act on the cluster.

Of the router this package imports the contract only (`promptgroup_contract`). The folders below are layers:
each may import those that stand under it in `pyproject.toml`, and `lint-imports` holds them to it.
"""

__version__ = "0.1.0"
"""The version of the distribution, for images, in which no distribution is installed."""
