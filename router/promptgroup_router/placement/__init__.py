"""Places each request on a replica, counts it there until it ends, and tells peers.

The routing policies are in `policy`. Does no I/O and reads no clock; the time is an argument.
"""
