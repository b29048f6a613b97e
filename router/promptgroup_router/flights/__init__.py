"""Answers that are shared: kept ones, and those that several requests wait for while they are computed.

`response_cache` decides; this folder performs it on connections. Nothing here is reached by requests of groups that
keep no answers.

It may not import `server`.
"""
