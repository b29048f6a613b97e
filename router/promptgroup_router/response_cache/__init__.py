"""The response cache: which requests have one answer, where it is kept, and when it is forgotten.

`proxy` asks it and serves what it finds. All modules but `redis_store` do no I/O and read no clock.
"""
