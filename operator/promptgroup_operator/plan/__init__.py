"""Decides all effects of a pass. `plan.decide(world, now)` calls the other modules in order.

Does no I/O and reads no clock.
"""
