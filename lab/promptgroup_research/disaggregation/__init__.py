"""Prefill and decode on engines of their own, beside as many engines that do both.

`python -m promptgroup_research.disaggregation --help`; docs/research/prefill-decode.md has its results.
"""
