"""Reads the objects of one group that a pass needs, and decodes them into the values that decisions use.

Watched kinds are read from the stores, all others by name. It writes nothing.

It may not import `act`, `passes` or `handlers`.
"""
