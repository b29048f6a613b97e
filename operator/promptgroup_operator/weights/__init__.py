"""Decides where the model's weights are: on a volume of each replica, and on nodes before a replica starts there.

Does no I/O and reads no clock.
"""
