"""Decides everything that a pass does. `plan.decide(world, now)` calls the other modules in order.

Does no I/O and reads no clock.
"""
