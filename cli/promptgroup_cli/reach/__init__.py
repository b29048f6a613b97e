"""The sources of the commands' values: flags, files, the cluster, Prometheus."""
