"""HTTP to one engine, what its pods need, and in `dialects` what differs between engines.

It may not import `gateway`, `rollout`, `plan`, or a folder above them.
"""
