"""Guests: groups whose prompts are warm on the replicas of another group, their host.

A guest has no Deployments and no pods. Its revisions get views of the host's pods, in which slot and proof of warmth
are the guest's own, so that the modules that decide on a group also decide on a guest. Does no I/O and reads no
clock.
"""
