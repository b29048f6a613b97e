"""Decides which worker accepts on which socket, when a worker is started again, and what share of a limit each has.

Does no I/O and reads no clock.

Each worker has a place and the sockets of that place. The kernel spreads new connections over all sockets, so each must
have somebody who accepts: the sockets of a place whose worker is gone, or has no table yet, go to the others.
"""

from collections.abc import Sequence
from dataclasses import replace

from promptgroup_router.base.settings import Settings

STABLE_SECONDS = 10.0
"""A worker that ran for so long is replaced at once."""
FIRST_DELAY = 0.5
"""Seconds before the second start of a worker that ended early; each one more doubles them."""
LAST_DELAY = 30.0
"""Most seconds before a start."""


def sockets_of(places: int, sockets: int, serving: Sequence[int], ready: Sequence[int]) -> dict[int, list[int]]:
    """Return place → the sockets on which its worker accepts.

    Args:
        places: number of places; socket i belongs to place i modulo this.
        sockets: number of sockets.
        serving: places whose worker runs.
        ready: those whose worker has a table. Where nobody has, all accept, and say so.
    """
    found: dict[int, list[int]] = {place: [] for place in serving}
    able = sorted(set(serving) & set(ready)) or sorted(serving)
    spare = 0
    for number in range(sockets if able else 0):
        place = number % places
        if place not in able:
            place = able[spare % len(able)]
            spare += 1
        found[place].append(number)
    return found


def delay(ran: float, failures: int) -> float:
    """Return the seconds to wait before a worker is started again.

    Args:
        ran: seconds for which the last one ran.
        failures: how many ended early in a row, with the last one.
    """
    if ran >= STABLE_SECONDS or failures < 2:
        return 0.0
    return min(LAST_DELAY, FIRST_DELAY * 2.0 ** min(failures - 2, 16))


def share(settings: Settings, workers: int) -> Settings:
    """Return the settings of one worker: what bounds the whole router is divided.

    A worker's memory for bodies is never less than the largest body needs, of which a quarter is kept for small ones.
    """
    largest = -(-settings.max_body_bytes * 4 // 3)
    return replace(
        settings,
        workers=1,
        responses_memory_bytes=settings.responses_memory_bytes // workers,
        body_memory_bytes=max(-(-settings.body_memory_bytes // workers), largest),
        max_connections=-(-settings.max_connections // workers),
    )
