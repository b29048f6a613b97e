"""Replicas of several nodes: a replica is a group of pods of a LeaderWorkerSet, whose leader serves. Does no I/O."""
