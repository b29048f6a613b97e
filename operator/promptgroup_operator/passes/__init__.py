"""One reconcile pass, and the work that runs beside it: warm-ups, refreshes, and what groups of one model lend.

It may not import `handlers`.
"""
