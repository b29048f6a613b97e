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
"""
