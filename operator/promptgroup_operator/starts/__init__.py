"""Decides which phase of its start a replica is in, and what starts have taken. Does no I/O and reads no clock."""
