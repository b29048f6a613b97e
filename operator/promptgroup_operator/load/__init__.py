"""Reads what engines and routers did, from their own metrics or from Prometheus, and sums it over a window.

It may not import `kube`, `passes` or `handlers`.
"""
