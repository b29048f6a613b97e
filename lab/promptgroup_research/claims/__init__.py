"""Claims about prefix caching that need a run of their own: `python -m promptgroup_research.claims`."""
