"""The values that cross observe → decide → act: what was seen of a group, and what is measured of its engines.

Frozen values only, without behaviour that depends on time: no folder above needs another folder's types to talk to it.
Does no I/O, reads no clock, and imports `api` and `base` only.
"""
