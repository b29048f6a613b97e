"""Serves gRPC over HTTP/2 (RFC 9113), as far as gateways need it for requests to a picker.

Frames and streams are state without I/O. `docs/development/decisions/0026` explains why no library is used.
"""
