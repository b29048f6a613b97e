"""Decides how a new prompt takes over: its steps, its analysis against the old one, and the retirement of the old one.

Does no I/O and reads no clock.
"""
