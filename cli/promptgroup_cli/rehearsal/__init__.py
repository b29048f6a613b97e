"""`promptgroup plan FILE`: runs the operator's own planner on a simulated cluster, and describes its steps.

Does no I/O: manifests come in as text, the caller moves the time.
"""
