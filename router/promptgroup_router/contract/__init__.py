"""What operator and router agree on: names, prompt identity, the routing table. Standard library only."""
