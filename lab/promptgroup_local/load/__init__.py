"""Load: multi-turn sessions of several tasks, sent through a router or straight to engines, and their results.

`prompts` and `workload` define the requests, `client` sends them, `counters` reads the engines' metrics, `reference`
computes the best possible result, `summary` combines them and `report` shows it. Only `client` and `counters` do I/O.
"""
