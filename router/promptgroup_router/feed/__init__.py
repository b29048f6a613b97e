"""Where the routing table comes from: a file, or the API server with a copy on disk."""
