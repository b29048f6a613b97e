"""`promptgroup plan FILE`: the operator's own planner acts on a simulated cluster, and its steps are told.

Does no I/O: manifests come in as text, time is moved by hand.
"""
