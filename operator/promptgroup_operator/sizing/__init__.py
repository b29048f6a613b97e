"""Decides how many replicas a group wants, and explains why. Does no I/O and reads no clock.

model         predicts the engines' load with another number of replicas
limits        finds the smallest number of replicas within all limits
shared        sizes groups that lend replicas to each other together
max_hit_rate  estimates the highest possible hit rate
prompt_drift  detects requests whose prompt differs from the declared one
transient     detects the dip in hit rate that the group's own changes cause
behavior      limits the rate of change of the number
recommend     returns the number, with its reason
diagnosis     reports if the caches are effective, and if not, the cause
"""
