"""Shared answers: cached ones, and those that several requests wait for while they are computed.

`response_cache` decides; this folder acts on connections. Requests of groups without a response cache do not reach it.

It may not import `server`.
"""
