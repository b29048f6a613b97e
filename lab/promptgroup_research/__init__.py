"""A discrete-event simulation of engines behind routers: the project's own policy and its peers', on virtual time.

`python -m promptgroup_research --help`; docs/research/policy.md has its results and how to repeat them. Research is
not part of the product: nothing imports it, and its checks (`make research`) run apart from `make check`.
"""
