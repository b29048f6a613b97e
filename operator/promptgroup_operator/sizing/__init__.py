"""How many replicas a group wants, and why. Pure.

load        what engines and routers did over a window
model       what they would do with another number of replicas
need        the least number that keeps every limit
pool        groups that lend to each other: sized together, then shared out
ceiling     what could be found in cache
departures  prompts that leave the declared one
waves       the dip that the group's own changes cause
behavior    how fast the number may change
verdict     the number, with its reason
diagnosis   whether the caches do their work, and if not why

Ahead of any load, for the command line:

shape        what a model keeps of a token, from its config
kv           bytes of a token, tokens of a replica
known        well-known models
gpus         what GPUs have
estimate     what a replica can do, where nothing is measured
expectation  what replicas will do, before there is anything to observe
preview      what the operator would decide, if it observed that
"""
