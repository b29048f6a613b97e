"""What requests may have beside a place to go: a module for each feature, which acts at the points of a request's life.

A feature imports no other feature, does no I/O and reads no clock. `decision.arrival` alone knows which there are.
"""
