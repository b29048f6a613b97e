"""HTTP to engines, the parts of their pods, and in `dialects` the differences between engines.

It may not import `gateway`, `rollout`, `plan`, or a folder above them.
"""
