"""The output of the commands. Each module turns values into text; none does I/O.

It may not import `dashboard`, `flags` or `commands`.
"""
