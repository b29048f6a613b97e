"""Streams that go on on another replica when their own is lost, or must leave, by the ids of their tokens."""
