"""The use of one group by one caller: within the last minute, since midnight, and at this moment.

The minute is a window that slides in slices of half a second. All of it is one object, whose sums hold for the slice
that runs: a request within it adds to numbers and looks nothing up. Does no I/O; the time is an argument.
"""

from collections import deque
from typing import NamedTuple

from promptgroup_router.contract.caller_rules import CallerLimits

WINDOW_SECONDS = 60.0
SLICE_SECONDS = 0.5
"""Precision of the window: what is used within one slice leaves it at once."""
_SLICES = int(WINDOW_SECONDS / SLICE_SECONDS)


class SpendReport(NamedTuple):
    """The use of one account, as one router tells the others."""

    account: int
    """Hash of the group and the caller (64 bits)."""
    requests: int
    """Requests that the sender has admitted since it started."""
    tokens: int
    """Tokens that it has charged since it started; a correction may make them fewer."""
    minute_requests: int
    """Requests of all routers within the last minute, as far as the sender knows."""
    minute_tokens: int
    day_tokens: int
    """Tokens of all routers since midnight, UTC."""
    in_flight: int
    """Requests that the sender has now."""


class Slice:
    """The use within half a second, which is never less than nothing."""

    __slots__ = ("number", "requests", "tokens")

    def __init__(self, number: int) -> None:
        self.number = number
        """Slices since the monotonic time 0."""
        self.requests = 0
        self.tokens = 0


class Account:
    """The use of one group by one caller. Its sums hold before the time `until`: `move` first, if that has come."""

    __slots__ = (
        "_slices",
        "answer",
        "day",
        "day_tokens",
        "in_flight",
        "key",
        "limits",
        "minute_requests",
        "minute_tokens",
        "names",
        "peer_in_flight",
        "peers",
        "requests_line",
        "silent_from",
        "slice",
        "spent_requests",
        "spent_tokens",
        "telling",
        "ticks",
        "tokens_line",
        "told_requests",
        "told_tokens",
        "until",
    )

    def __init__(self, key: int) -> None:
        self.key = key
        self.names: tuple[str, str] | None = None
        """The group and the caller; None while only peers have told of them."""
        self.slice = Slice(-1)
        """The slice that runs."""
        self._slices = deque([self.slice])
        """The slices of the last minute with a use, the oldest first, and the one that runs."""
        self.until = 0.0
        """The end of the slice that runs, monotonic seconds."""
        self.minute_requests = 0
        """Requests of all routers within the last minute."""
        self.minute_tokens = 0
        self.day = 0
        """Days since the epoch, of `day_tokens`."""
        self.day_tokens = 0
        self.in_flight = 0
        """Requests that this router has now."""
        self.peer_in_flight = 0
        self.spent_requests = 0
        """Requests that this router has charged since it started."""
        self.spent_tokens = 0
        self.told_requests = 0
        """The value of `spent_requests` that peers surely know: they were told it twice."""
        self.told_tokens = 0
        self.telling = (0, 0)
        """Requests and tokens that they were told last, once."""
        self.answer = 0.0
        """Tokens that an answer is expected to have."""
        self.ticks = 0
        """Ticks in which peers are still to be told."""
        self.silent_from = 0.0
        """Time at which the account counts as silent, monotonic seconds."""
        self.limits: CallerLimits | None = None
        """The limits that the next two are of."""
        self.requests_line = b""
        """The beginning of an answer's line that tells what is left of the requests a minute."""
        self.tokens_line = b""
        """The same of the tokens a minute."""
        self.peers: dict[int, SpendReport] = {}
        """Peer → its last report."""

    def move(self, now: float, day: int) -> None:
        """Begin the slice of this time and day, and let go of what is older than a minute."""
        number = int(now / SLICE_SECONDS)
        slices, oldest = self._slices, number - _SLICES
        if number > self.slice.number:
            self.slice = Slice(number)
            slices.append(self.slice)
            self.until = (number + 1) * SLICE_SECONDS
        while slices[0].number < oldest:
            gone = slices.popleft()
            self.minute_requests -= gone.requests
            self.minute_tokens -= gone.tokens
        if day != self.day:
            self.day, self.day_tokens = day, 0

    def spend(self, requests: int, tokens: int) -> None:
        """Add a use to the slice that runs."""
        at = self.slice
        at.requests += requests
        at.tokens += tokens
        self.minute_requests += requests
        self.minute_tokens += tokens
        self.day_tokens += tokens

    def take_back(self, tokens: int, used: Slice) -> None:
        """Take tokens out of the slice that they were charged in, if it has not left the window."""
        left = self.day_tokens - tokens
        self.day_tokens = max(0, left)
        if used.number >= self._slices[0].number:
            # a peer's correction may have taken some of them already
            found = min(used.tokens, tokens)
            used.tokens -= found
            self.minute_tokens -= found

    def take_back_from_latest(self, tokens: int) -> None:
        """Take tokens out of the latest slices: nobody knows in which of them they were charged."""
        self.day_tokens = max(0, self.day_tokens - tokens)
        for used in reversed(self._slices):
            if tokens <= 0:
                return
            found = min(tokens, used.tokens)
            used.tokens -= found
            self.minute_tokens -= found
            tokens -= found

    def seconds_until(self, *, requests: int = 0, tokens: int = 0, now: float) -> float:
        """Return the seconds after which so much has left the window, if nothing more is used; at most a minute."""
        for each in self._slices:
            requests -= each.requests
            tokens -= each.tokens
            if requests <= 0 and tokens <= 0:
                return max(0.0, (each.number + _SLICES + 1) * SLICE_SECONDS - now)
        return WINDOW_SECONDS

    def report(self) -> SpendReport:
        """Return what peers are told of the account."""
        return SpendReport(
            self.key,
            self.spent_requests,
            self.spent_tokens,
            self.minute_requests,
            self.minute_tokens,
            self.day_tokens,
            self.in_flight,
        )
