"""Makes the decisions on one request from its head to its end, for the router's proxy and for gateways.

Does no I/O but logging, and reads no clock; the time and random bytes are arguments.
"""
