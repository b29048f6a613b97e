"""Stores the last reports of peers that fell silent, and estimates how much of their next reports counts now.

A peer whose reports do not arrive may only be separated by a network partition, and go on charging callers: its next
report then covers hours at once. The report does not say when charges were made, and its sum of the last minute may
include charges that this router has reported to the peer. So the charges count as if they had been made evenly over the
silence, and for no less than the excess of that sum over the sum of this router. Does no I/O; the time is an argument.
"""

from typing import NamedTuple

from promptgroup_router.callers.account import WINDOW_SECONDS, SpendReport

REMEMBERED_SECONDS = 3600.0
"""Seconds for which the reports of a silent peer are stored: each restart of a router leaves a peer that never returns.
A peer that returns later counts as a new one."""


class Parted(NamedTuple):
    """The last report of a peer on an account, before it fell silent."""

    report: SpendReport
    at: float
    """Time at which the peer was declared silent, monotonic seconds."""


class PartedPeers:
    """The last reports of peers that have fallen silent."""

    def __init__(self) -> None:
        self._peers: dict[int, dict[int, Parted]] = {}
        """Peer → account → its last report."""
        self._silent: dict[int, float] = {}
        """Peer → time at which it was last declared silent, the longest silent first."""

    def part(self, sender: int, reports: dict[int, SpendReport], now: float) -> None:
        """Store the last reports of a peer that has fallen silent.

        Args:
            sender: the peer.
            reports: account → the peer's last report of it.
            now: monotonic seconds.
        """
        if reports:
            self._silent.pop(sender, None)
            self._silent[sender] = now
            peer = self._peers.setdefault(sender, {})
            peer.update((account, Parted(report, now)) for account, report in reports.items())

    def rejoin(self, sender: int, account: int) -> Parted | None:
        """Return and remove a peer's last report of an account before it fell silent; None if there is none."""
        peer = self._peers.get(sender)
        if peer is None:
            return None
        parted = peer.pop(account, None)
        if not peer:
            del self._peers[sender], self._silent[sender]
        return parted

    def forget(self, now: float) -> None:
        """Drop the reports of peers that have been silent for more than REMEMBERED_SECONDS."""
        while self._silent:
            sender, at = next(iter(self._silent.items()))
            if now - at <= REMEMBERED_SECONDS:
                return
            del self._silent[sender], self._peers[sender]


def of_last(seconds: float, charged: int, silence: float) -> int:
    """Return the share of the last `seconds` in a total that was charged evenly over a silence."""
    return charged if silence <= seconds else int(charged * max(0.0, seconds) / silence)


def of_last_minute(charged: int, silence: float, result: int, known: int) -> int:
    """Return the part of what a peer has charged in a silence that counts for the minute.

    Args:
        charged: requests or tokens; less than zero if corrections were more.
        silence: seconds.
        result: the sum of all routers within the last minute, as the peer reports it: the upper bound of the return
            value.
        known: the same sum as this router has recorded it.
    """
    return min(max(of_last(WINDOW_SECONDS, charged, silence), min(charged, result - known)), result)
