"""The response cache: which answers are cacheable, where they are cached, and when they expire.

`flights` calls it and serves cached answers. All modules but `redis_store` do no I/O and read no clock.
"""
