"""Decides which connections give way to a new one when a port has as many as it may have.

Connections that have sent nothing cost a client nothing, and one address can open any number of them. So they give way
first, then those with a part of a head, then those that wait for another request, and uploads last; one whose request
is being answered never does. Among equals the network with the most of them loses its oldest. Clients behind a load
balancer share its address, so there is no limit for an address: a connection is given time to begin instead, unless
others have fewer. Does no I/O; the time is an argument.
"""

import enum
from collections import Counter
from collections.abc import Sequence
from ipaddress import IPv6Address
from typing import NamedTuple

GRACE_SECONDS = 1.0
"""Time that a connection is given, from its last step, before it gives way to others of its network."""
PART = 64
"""One in so many of all connections gives way at once where they have sent no full head, since examining all takes
time."""
PAUSE_SECONDS = 0.1
"""Time until the next search on behalf of a network for which no connection gave way."""

_V6_NETWORK_BYTES = 8
"""Bytes of an IPv6 address that all machines of one network share; the owner of the network can vary the others."""


class Use(enum.IntEnum):
    """The stages of a connection, those first that give way first."""

    SILENT = 0
    """It has sent no byte of a request."""
    BEGUN = 1
    """It has sent a part of a request's head."""
    KEPT = 2
    """It has had an answer, and sent nothing since."""
    UPLOADING = 3
    """It has sent a request's head, and a part of the body."""


class Standing(NamedTuple):
    """A connection that may give way."""

    use: Use
    network: str
    since: float
    """Time of its last step, monotonic seconds."""


def who_gives_way(standings: Sequence[Standing], newcomer: str, now: float) -> list[int]:
    """Return the places of those that give way, none if all have to be given more time.

    Args:
        standings: all that may give way.
        newcomer: the network that the new connection is from.
        now: monotonic seconds.
    """
    crowds = Counter(standing.network for standing in standings)
    own = crowds[newcomer] + 1
    ordered = sorted(
        (use, -crowds[network], since, place)
        for place, (use, network, since) in enumerate(standings)
        if now - since >= GRACE_SECONDS or crowds[network] > own
    )
    if not ordered:
        return []
    first = ordered[0][0]
    most = max(1, len(standings) // PART) if first <= Use.BEGUN else 1
    return [place for use, _, _, place in ordered[:most] if use is first]


def network_of(address: str) -> str:
    """Return the addresses that one client controls: an IPv4 address, or the /64 of an IPv6 one."""
    if ":" not in address:
        return address
    i_pv6_address = IPv6Address(address)
    if i_pv6_address.ipv4_mapped is not None:
        return str(i_pv6_address.ipv4_mapped)
    return i_pv6_address.packed[:_V6_NETWORK_BYTES].hex()
