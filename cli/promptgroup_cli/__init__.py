"""The command line: `promptgroup COMMAND`, or `kubectl promptgroup COMMAND`.

It runs the code of the operator and of the router instead of copying it; neither imports it, and no image contains it.
"""
