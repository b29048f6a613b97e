"""Streams that another replica continues, by the ids of their tokens, when their own is lost or must be removed."""
