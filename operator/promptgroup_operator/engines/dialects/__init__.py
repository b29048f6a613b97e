"""The differences between engines: each engine has a file of its own. Does no I/O.

A new engine is added here: one value of `Dialect` in a file of its own, and a line in `registry`.

It may not import a folder of the operator but `api` and `base`.
"""
