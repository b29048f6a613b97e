"""Real engines on this machine's CPU, with a small model of random weights, as replicas of a local cluster."""
