"""The sources of the commands' values: flags, files, the cluster, Prometheus.

It may not import `embedding`, `render`, or a folder above them.
"""
