"""Exchanges between the routers of one namespace where sessions are and how loaded replicas are.

`transport` has the sockets. The protocol, its datagrams and its members are decided without I/O.
"""
