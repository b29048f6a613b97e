"""The operator's own metrics: what is counted, how it is collected, and the port that serves it.

It may not import `warmth`, `engines`, or a folder above them.
"""
