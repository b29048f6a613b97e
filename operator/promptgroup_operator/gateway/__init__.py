"""Decides what gateways are told of a group, and reads what they say. Does no I/O and reads no clock."""
