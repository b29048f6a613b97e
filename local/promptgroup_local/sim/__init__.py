"""A discrete-event simulation of engines behind routers: the project's own policy and its peers', on virtual time.

`python -m promptgroup_local.sim --help`; docs/policy.md says what it found and how to repeat it.
"""
