"""Settings, errors with their HTTP status, logs and metrics, which every other folder uses.

It may not import any folder but `contract`.
"""
