"""Scaling in the simulation: the project's own sizing and HorizontalPodAutoscaler's, on a changing set of replicas.

`python -m promptgroup_research.scaling --help`; docs/research/sizing-bench.md has its results and how to repeat them.
"""
