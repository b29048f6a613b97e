"""Keeps what peers had told before they fell silent, and estimates what of their next reports counts now.

A peer that is not heard may only be parted by the network, and charge callers all the while: its next report tells of
hours at once. It does not tell when it charged what, and its own sum of the last minute may have what this router told
it already. So the charges count as if they had been made evenly, and for no less than that sum has beyond what this
router knows. Does no I/O; the time is an argument.
"""

from typing import NamedTuple

from promptgroup_router.callers.account import WINDOW_SECONDS, SpendReport

REMEMBERED_SECONDS = 3600.0
"""Seconds for which it is kept what a silent peer had told: each restart of a router leaves a peer that never returns.
One that does after longer is a new peer."""


class Parted(NamedTuple):
    """The last report of a peer on an account, before it fell silent."""

    report: SpendReport
    at: float
    """Time at which the peer was found silent, monotonic seconds."""


class PartedPeers:
    """The last reports of peers that have fallen silent."""

    def __init__(self) -> None:
        self._peers: dict[int, dict[int, Parted]] = {}
        """Peer → account → what it had told."""
        self._silent: dict[int, float] = {}
        """Peer → time at which it was found silent last, the longest silent first."""

    def part(self, sender: int, reports: dict[int, SpendReport], now: float) -> None:
        """Keep the last reports of a peer that has fallen silent.

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
        """Return what a peer had told of an account before it fell silent, and forget it; None for nothing."""
        peer = self._peers.get(sender)
        if peer is None:
            return None
        parted = peer.pop(account, None)
        if not peer:
            del self._peers[sender], self._silent[sender]
        return parted

    def forget(self, now: float) -> None:
        """Forget the peers that have been silent for too long."""
        while self._silent:
            sender, at = next(iter(self._silent.items()))
            if now - at <= REMEMBERED_SECONDS:
                return
            del self._silent[sender], self._peers[sender]


def of_last(seconds: float, charged: int, silence: float) -> int:
    """Return the part that is of the last seconds of what was charged evenly in the seconds of a silence."""
    return charged if silence <= seconds else int(charged * max(0.0, seconds) / silence)


def of_last_minute(charged: int, silence: float, result: int, known: int) -> int:
    """Return the part of what a peer has charged in a silence that counts for the minute.

    Args:
        charged: requests or tokens; less than zero if corrections were more.
        silence: seconds.
        result: those of all routers within the last minute, as far as the peer knows: the result is never more.
        known: the same as far as this router knows.
    """
    return min(max(of_last(WINDOW_SECONDS, charged, silence), min(charged, result - known)), result)
