"""Decides how many replicas a group wants, and explains why. Does no I/O and reads no clock.

model         predicts what the engines would do with another number of replicas
limits        finds the least number of replicas that keeps every limit
shared        sizes groups that lend replicas to each other together
max_hit_rate  says what share of the tokens could be found in cache at best
prompt_drift  finds requests whose prompt leaves the declared one
transient     recognises the dip in hit rate that the group's own changes cause
behavior      limits how fast the number may change
recommend     gives the number, with its reason
diagnosis     says whether the caches do their work, and if not, why
"""
