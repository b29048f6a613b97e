"""Load: multi-turn sessions of several tasks, sent through a router or straight to engines, and what they met.

Pure: `prompts`, `workload`, `reference`, `summary`. I/O: `client` (sends), `counters` (reads the engines' metrics),
`report` (prints).
"""
