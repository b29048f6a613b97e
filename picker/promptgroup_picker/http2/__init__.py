"""Serves gRPC over HTTP/2 (RFC 9113): what a gateway that asks a picker needs, and no more.

Frames and streams are state without I/O. `docs/development/decisions/0026` says why no library does it.
"""
