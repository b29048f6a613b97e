"""Sees one group in the cluster: the objects that a pass needs, decoded into the values that decisions use.

Watched kinds come from the stores, all others by name. It writes nothing.

It may not import `act`, `passes` or `handlers`.
"""
