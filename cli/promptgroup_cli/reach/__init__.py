"""Where the commands get their values from: flags, files, the cluster, Prometheus."""
