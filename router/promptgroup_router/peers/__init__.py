"""Exchanges the placements of sessions and the load of replicas between the routers of one namespace.

`transport` has the sockets. The protocol, its datagrams and its members are decided without I/O.
"""
