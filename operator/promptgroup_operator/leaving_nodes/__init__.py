"""Decides which nodes are about to go, by their taints, and which replicas drain for it.

Does no I/O and reads no clock.
"""
