"""Scaling in the simulation: the project's own sizing and HorizontalPodAutoscaler's, on replicas that come and go.

`python -m promptgroup_research.scaling --help`; docs/research/sizing-bench.md says what it found and how to repeat it.
"""
