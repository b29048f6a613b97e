"""Decides which replicas need a warm-up, judges its proof, and decides which may have lost their prefix since.

Does no I/O and reads no clock: `engines` sends the requests and `passes` runs them.
"""
