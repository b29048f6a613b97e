"""The sources of the commands' values: files, the cluster, its routers.

It may not import `calibration`, `dashboard` or `commands`.
"""
