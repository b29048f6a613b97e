"""The features of requests: a module each, which acts at the points of a request's life.

A feature imports no other feature, does no I/O and reads no clock. Only `decision.arrival` has the list of features.
"""
