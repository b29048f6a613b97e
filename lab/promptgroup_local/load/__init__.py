"""Load: multi-turn sessions of several tasks, sent through a router or straight to engines, and what they met.

`prompts` and `workload` say what is sent, `client` sends it, `counters` reads the engines' metrics, `reference` says
what was possible, `summary` brings them together and `report` shows it. Only `client` and `counters` do I/O.
"""
