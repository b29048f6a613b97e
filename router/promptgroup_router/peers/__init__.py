"""What the routers of one namespace tell each other: where sessions are, and how loaded replicas are.

`transport` has the sockets; the protocol, its datagrams and its members are decided without I/O.
"""
