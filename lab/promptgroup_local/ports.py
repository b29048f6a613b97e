"""Ports of this machine for programs that take one by a flag."""

import random
import socket
from contextlib import ExitStack
from pathlib import Path

LOWEST, HIGHEST = 10_240, 30_000
"""Ports that are allocated: those above are for connections, and for Services of type NodePort."""
_CONNECTIONS = Path("/proc/sys/net/ipv4/ip_local_port_range")
_FEWEST = 1000
"""Where connections leave fewer ports than that below theirs, they are not avoided."""
_TRIES = 10_000
_CHOOSER = random.SystemRandom()
"""Not the generator of the `random` module, which tests seed: each process would get the same ports."""


def free_ports(count: int) -> list[int]:
    """Return so many different ports on which no process listens, neither by TCP nor by UDP.

    They are chosen at random, outside the range from which the kernel assigns ports to connections.

    Raises:
        OSError: there are not so many.
    """
    highest = _highest()
    result: list[int] = []
    for _ in range(_TRIES):
        if len(result) == count:
            return result
        port = _CHOOSER.randrange(LOWEST, highest)
        if port not in result and _is_free(port):
            result.append(port)
    raise OSError(f"no {count} free ports between {LOWEST} and {highest} on 127.0.0.1")


def _highest() -> int:
    """Return the end of the ports that are given out."""
    try:
        first = int(_CONNECTIONS.read_text().split()[0])
    except (OSError, ValueError, IndexError):  # another system than Linux
        return HIGHEST
    return min(HIGHEST, first) if first >= LOWEST + _FEWEST else HIGHEST


def _is_free(port: int) -> bool:
    with ExitStack() as stack:
        for kind in (socket.SOCK_STREAM, socket.SOCK_DGRAM):
            trying = stack.enter_context(socket.socket(socket.AF_INET, kind))
            try:
                trying.bind(("127.0.0.1", port))
            except OSError:
                return False
    return True
