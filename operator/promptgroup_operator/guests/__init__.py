"""Guests: groups whose prompts are kept warm on the replicas of another group, their host.

A guest has no Deployments and no pods. Here its revisions get views of the host's pods, in which slot and proof of
warmth are the guest's own, so that all that decides on a group decides on a guest as well. Does no I/O and reads no
clock.
"""
