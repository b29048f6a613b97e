"""HTTP to one engine, and what differs between engines: arguments, paths, metric names.

A new engine is added here: a `Dialect` in `dialect` and its metric names in `metric_names`.

It may not import `gateway`, `rollout`, `plan`, or a folder above them.
"""
