"""What the end-to-end tests stand on: a kind cluster, its images, what is installed on it, and clients inside it.

Nothing here imports the operator or the router: `kubectl`, `docker`, `kind` and HTTP are all that is used.
"""
