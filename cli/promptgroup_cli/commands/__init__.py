"""The commands. Each module runs one, by the flags that `flags` has parsed.

It may not import `__main__`, which alone stands above it.
"""
