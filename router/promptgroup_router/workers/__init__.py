"""Runs several router processes on one port, supervised, with one admin port that answers for all of them.

The supervisor binds the sockets and hands them on, starts and replaces workers, and asks them what its admin port is
asked. It sees no request. What workers know of sessions and loads they tell each other as routers do (`peers`).

It may not import `__main__`, which alone stands above it.
"""
