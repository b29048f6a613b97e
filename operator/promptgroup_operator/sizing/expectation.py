"""What replicas of a group will do, before there is anything to observe. Pure.

A load is described by what its requests are like: rate, lengths, sessions. Of a request's prompt

    prompt = Tier-1 prefix + history + turn

the prefix is found in every replica's cache, the turn in none, and the history where it was not evicted since the
session's last turn. Of that, by Che's approximation of a least-recently-used cache (Che, Tung, Wang: Hierarchical Web
caching systems, IEEE JSAC 20(7), 2002): with pauses that are exponential with mean `sessions / rate`, what was not
touched for a time T is gone, where T is the time in which the room for sessions fills with what is touched:

    room of n replicas = context x (sessions x (1 - e^-x) + sessions x x / turns)     x = T / mean pause
    share of histories that are found = 1 - e^-x

The first term is sessions that live; the second those that ended within T, which the cache does not know. So sessions
that would just fit lose a quarter of their histories; about twice their KV is needed to keep nearly all.
"""

import math
from dataclasses import dataclass

from promptgroup_operator.sizing.kv import WorkingSet
