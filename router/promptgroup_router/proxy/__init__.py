"""Relays requests: from a client's socket to an engine's and back."""
