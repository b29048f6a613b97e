"""Settings, errors, durations, and the limits for reading and for sharing workers, which every other folder uses.

Imports nothing of the operator.
"""
