"""Decides the objects that gateways read of a group, and reads their status. Does no I/O and reads no clock."""
