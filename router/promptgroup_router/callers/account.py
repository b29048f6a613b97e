"""The use of one group by one caller: within the last minute, since midnight, and at this moment.

The minute is a window that slides in slices of half a second. All of it is one object, whose sums hold for the current
slice: a request within it only adds to numbers.

No window has more tokens than the limit. The tokens of an answer beyond it are a debt, which reduces the limit of the
next windows until it is paid: over time a caller gets its limit, however it sends its requests. Does no I/O; the time
is an argument.
"""

from collections import deque
from typing import NamedTuple

from promptgroup_contract.caller_rules import CallerLimits

WINDOW_SECONDS = 60.0
SLICE_SECONDS = 0.5
"""Precision of the window: what is used within one slice leaves it at once."""
MOST_DEBT = 60
"""Windows after which a debt is paid at the latest: no single answer uses as much, and false reports of a peer block a
caller for no longer."""
_SLICES = int(WINDOW_SECONDS / SLICE_SECONDS)


class SpendReport(NamedTuple):
    """The use of one account, as one router reports it to the others."""

    account: int
    """Hash of the group and the caller (64 bits)."""
    requests: int
    """Requests that the sender has admitted since it started."""
    tokens: int
    """Tokens that it has charged since it started; a correction may make them fewer."""
    minute_requests: int
    """Requests of all routers within the last minute, as counted by the sender."""
    minute_tokens: int
    """Tokens of the same, and the debt."""
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
    """The use of one group by one caller. Its sums hold before the time `until`: call `move` first if it has passed."""

    __slots__ = (
        "_slices",
        "assumed",
        "day",
        "day_tokens",
        "debt",
        "fresh",
        "fresh_requests",
        "fresh_tokens",
        "heard",
        "heard_at",
        "in_flight",
        "key",
        "limits",
        "longest",
        "minute_requests",
        "minute_tokens",
        "most",
        "names",
        "open_tokens",
        "peer_in_flight",
        "peers",
        "reports",
        "requests_line",
        "silent_from",
        "slice",
        "spent_requests",
        "spent_tokens",
        "telling",
        "ticks",
        "tokens_line",
        "told_in_flight",
        "told_requests",
        "told_tokens",
        "until",
    )

    def __init__(self, key: int) -> None:  # noqa: PLR0915 - all of it in one place
        self.key = key
        self.names: tuple[str, str] | None = None
        """The group and the caller; None while only peers have reported them."""
        self.slice = Slice(-1)
        """The slice that runs."""
        self._slices = deque([self.slice])
        """The slices of the last minute with a use, the oldest first, and the one that runs."""
        self.until = 0.0
        """The end of the slice that runs, monotonic seconds."""
        self.minute_requests = 0
        """Requests of all routers within the last minute."""
        self.minute_tokens = 0
        """Tokens of the same, at most `most`."""
        self.most = 0
        """The limit of tokens a minute; 0 for none, and while only peers have reported the account."""
        self.debt = 0
        """Tokens that were used beyond it and are still to be paid."""
        self.heard = 0
        """Tokens and debt in a peer's last report of an account for which this router has no limit."""
        self.heard_at = 0.0
        self.day = 0
        """Days since the epoch, of `day_tokens`."""
        self.day_tokens = 0
        self.assumed = 0
        """Tokens of the day that a peer has reported as part of its sum, and that no peer has reported as its own
        yet."""
        self.in_flight = 0
        """Requests that this router has now."""
        self.peer_in_flight = 0
        self.spent_requests = self.spent_tokens = 0
        """Requests and tokens that this router has charged since it started."""
        self.told_requests = self.told_tokens = 0
        """The values of these that all peers have surely received."""
        self.telling: deque[tuple[float, int, int, int, int]] = deque()
        """The values of later reports: the time and the number of the first report with them, then requests, tokens,
        and the requests in flight."""
        self.reports = 0
        """Number of reports that were sent to peers."""
        self.fresh: deque[tuple[float, int, int]] = deque()
        """Requests and tokens that peers have reported lately, each with the time."""
        self.fresh_requests = self.fresh_tokens = 0
        """The sums of these: peers have charged them to their own shares of what was left before."""
        self.told_in_flight = 0
        """Lower bound of the requests in flight that peers count for this router: the least of the values that they may
        have received last."""
        self.open_tokens = 0
        """Tokens that are reserved for answers which have not ended, and may be returned."""
        self.longest = 0.0
        """Tokens of the longest recent answer; the value halves with each minute."""
        self.ticks = 0
        """Ticks in which the account is still to be reported to peers."""
        self.silent_from = 0.0
        """Time at which the account counts as silent, monotonic seconds."""
        self.limits: CallerLimits | None = None
        """The limits to which the next two attributes belong."""
        self.requests_line = b""
        """The beginning of the response header line with the remaining requests a minute."""
        self.tokens_line = b""
        """The same for the tokens a minute."""
        self.peers: dict[int, SpendReport] = {}
        """Peer → its last report."""

    def move(self, now: float, day: int) -> None:
        """Begin the slice of this time and day, and drop slices older than a minute."""
        number = int(now / SLICE_SECONDS)
        slices, oldest = self._slices, number - _SLICES
        passed = number - self.slice.number
        if passed > 0:
            if self.longest:
                self.longest *= 0.5 ** (passed / _SLICES)
            if self.debt:
                # whole windows may have passed since the last call: each has paid its part, and the last one is paid
                # below
                self.debt = max(0, self.debt - self.most * max(0, passed // (_SLICES + 1) - 1))
            self.slice = Slice(number)
            slices.append(self.slice)
            self.until = (number + 1) * SLICE_SECONDS
        while slices[0].number < oldest:
            gone = slices.popleft()
            self.minute_requests -= gone.requests
            self.minute_tokens -= gone.tokens
        if self.debt:
            self._pay()
        if day != self.day:
            self.day, self.day_tokens, self.assumed = day, 0, 0

    def spend(self, requests: int, tokens: int) -> None:
        """Add a use to the slice that runs."""
        at = self.slice
        at.requests += requests
        at.tokens += tokens
        self.minute_requests += requests
        self.minute_tokens += tokens
        self.day_tokens += tokens

    def bound(self, most: int, now: float) -> None:
        """Hold the account to a limit of tokens a minute from here on; 0 for none."""
        heard, self.heard = self.heard, 0
        self.most = most
        if not most:
            self.debt = 0
            return
        self.hold()
        # usage that was reported before the limit was read has been paid at the rate of the limit
        paid = most + int(most * max(0.0, now - self.heard_at) / WINDOW_SECONDS)
        self.debt = min(max(self.debt, heard - paid), MOST_DEBT * most)
        self._pay()

    def hold(self) -> None:
        """Make a debt of what the window has beyond the limit."""
        over = self.minute_tokens - self.most
        if over > 0 and self.most:
            self._take_from_latest(over)
            self.debt = min(self.debt + over, MOST_DEBT * self.most)

    def _pay(self) -> None:
        """Pay as much of the debt as the limit of the window allows."""
        paid = min(self.debt, self.most - self.minute_tokens)
        if paid > 0:
            self.debt -= paid
            self.slice.tokens += paid
            self.minute_tokens += paid

    def take_back(self, tokens: int, used: Slice) -> None:
        """Take tokens out of the debt, and of the slice that they were charged in, if it has not left the window."""
        self.day_tokens = max(0, self.day_tokens - tokens)
        tokens -= self._forgive(tokens)
        if used.number >= self._slices[0].number:
            result = min(used.tokens, tokens)
            used.tokens -= result
            self.minute_tokens -= result
            # a peer's correction has taken some of them already, in the place of its own
            self._take_from_latest(tokens - result)

    def take_back_from_latest(self, tokens: int) -> None:
        """Take tokens out of the debt and the latest slices, for lack of a record of the slices that they are in."""
        self.day_tokens = max(0, self.day_tokens - tokens)
        self._take_from_latest(tokens - self._forgive(tokens))

    def _forgive(self, tokens: int) -> int:
        result = min(self.debt, tokens)
        self.debt -= result
        return result

    def _take_from_latest(self, tokens: int) -> None:
        for used in reversed(self._slices):
            if tokens <= 0:
                return
            result = min(tokens, used.tokens)
            used.tokens -= result
            self.minute_tokens -= result
            tokens -= result

    def seconds_until(self, *, requests: int = 0, tokens: int = 0, now: float) -> float:
        """Return the seconds after which so much is free again, if nothing more is used; at most a minute."""
        if tokens > 0:
            tokens += self.debt
        for part in self._slices:
            requests -= part.requests
            tokens -= part.tokens
            if requests <= 0 and tokens <= 0:
                return max(0.0, (part.number + _SLICES + 1) * SLICE_SECONDS - now)
        return WINDOW_SECONDS

    def confirm(self, before: float) -> None:
        """Count values reported before a time, and more than once, as received by all peers; begin `fresh` there."""
        telling, fresh, popleft = self.telling, self.fresh, None
        while telling and telling[0][0] <= before and telling[0][1] < self.reports:
            popleft = telling.popleft()
        if popleft is not None:
            _, _, self.told_requests, self.told_tokens, in_flight = popleft
            self.told_in_flight = min(in_flight, self.in_flight, *[later[4] for later in telling])
        while fresh and fresh[0][0] <= before:
            _, requests, tokens = fresh.popleft()
            self.fresh_requests -= requests
            self.fresh_tokens -= tokens

    def hear(self, requests: int, tokens: int, now: float) -> None:
        """Add what a peer has charged to the slice that runs."""
        self.spend(requests, tokens)
        self.fresh.append((now, requests, tokens))
        self.fresh_requests += requests
        self.fresh_tokens += tokens

    def report(self, now: float) -> SpendReport:
        """Return the report on the account for peers, and record that it is sent."""
        self.reports += 1
        self.told_in_flight = min(self.told_in_flight, self.in_flight)
        result = self.spent_requests, self.spent_tokens, self.in_flight
        if not self.telling or self.telling[-1][2:] != result:
            self.telling.append((now, self.reports, *result))
        return SpendReport(
            self.key,
            self.spent_requests,
            self.spent_tokens,
            self.minute_requests,
            self.minute_tokens + self.debt,
            self.day_tokens,
            self.in_flight,
        )
