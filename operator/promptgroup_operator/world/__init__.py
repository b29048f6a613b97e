"""The values passed between observe, decide and act: the observed state of a group and measurements of its engines.

Frozen values only, without behaviour that depends on time: no folder above needs another folder's types to talk to it.
Does no I/O, reads no clock, and imports `api` and `base` only.
"""
