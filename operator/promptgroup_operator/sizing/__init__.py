"""How many replicas a group wants, and why. Pure.

load       what engines and routers did over a window
verdict    the number, with its reason
"""
