"""Enforces the limits of callers: requests and tokens a minute, requests at a time, tokens a day.

A request is charged as it is admitted, with its prompt and the longest answer that it may have; the tokens that the
engine reports settle it. Nothing that a caller has done before makes that less, or short answers would open the limit
for long ones. A request is admitted if its prompt fits. If its longest answer does not, what is left is reserved, and
no other request is admitted meanwhile: so a minute has at most the limit and one request, and more only where answers
without a stated length are longer than was reserved for them. The excess over the limit is charged to the next windows
(`account`). Windows slide, so that all of it holds wherever a minute begins.

Routers report their charges to each other (`SpendReport`) in each tick of their exchange, as counters of which only the
difference to the last report is used, so that a lost report does no harm. The latest charges of the others have not
arrived yet: a burst keeps all routers busy, and delays their reports. So a router charges at most its share of the
remaining limit, by the number of routers, and one request in any case. It may charge a share of the remainder again
once messages of all others have arrived `SETTLE_SECONDS` after its own first report. So a limit is exceeded by at most
one request for each further router. The charges of a router stay in force after it has stopped; a router that starts
takes over the state of the others.
"""

from collections import OrderedDict
from collections.abc import Sequence
from itertools import islice
from math import ceil, inf

import xxhash

from promptgroup_contract.caller_rules import CallerLimits
from promptgroup_router.apis.usage import Usage
from promptgroup_router.base.errors import ApiError
from promptgroup_router.callers.account import SLICE_SECONDS, WINDOW_SECONDS, Account, Slice, SpendReport
from promptgroup_router.callers.answer_events import UNSEEN
from promptgroup_router.callers.parted_peers import PartedPeers, of_last, of_last_minute
from promptgroup_router.http11.http1 import fields_of

DAY_SECONDS = 86400
MOST_ACCOUNTS = 20_000
"""Most accounts that are stored; beyond it the longest silent ones are evicted."""
REPEATS = 3
"""Ticks in which a change is reported: two datagrams in a row may be lost."""
SETTLE_SECONDS = 1.0
"""Time after which a report has been processed by a peer that still sends reports, and the peer's own earlier charges
have been reported: longer than a burst blocks an event loop."""
REPORTS_A_TICK = 240
"""Most reports of one tick; the others wait for the next one."""
MOST_AT_ONCE = 10**9
"""Most requests or tokens that are accepted as a peer's charge between two reports."""
MOST_RETRY_SECONDS = 60
"""Longest `Retry-After` of a minute's limit: the SDKs of OpenAI and Anthropic ignore a longer one, and retry within
seconds. A slice more may have to pass, and the request then waits for another second."""

SILENT_SECONDS = 5.0
"""Precision of the time for which an account has been silent."""

_REQUESTS, _TOKENS = "requests", "tokens"
_LEFT = b"x-ratelimit-limit-%b: %d\r\nx-ratelimit-reset-%b: 0s\r\nx-ratelimit-remaining-%b: "
_NONE_LEFT = b"x-ratelimit-limit-%b: %d\r\nx-ratelimit-reset-%b: %ds\r\nx-ratelimit-remaining-%b: 0"
_SHARE_SECONDS = 0.1
"""Wait for the charges of other routers, which the next tick reports."""
_SETTLED_SECONDS = 1.0
"""Wait for tokens that are reserved for answers which have not ended."""

Field = tuple[bytes, bytes]
"""Name and value of a header field."""


class Charge:
    """The charge for one request, until it is settled."""

    __slots__ = ("account", "limits", "open", "prompt", "reserved", "settled", "used")

    def __init__(self, account: Account, limits: CallerLimits, reserved: int, prompt: int, used: Slice) -> None:
        self.account = account
        self.limits = limits
        self.reserved = reserved
        """Tokens that were charged in advance."""
        self.prompt = prompt
        """Tokens that the prompt is estimated to have."""
        self.open = reserved - prompt if reserved > prompt else 0
        """Those of the reserved tokens that may be returned."""
        self.used = used
        """The slice in which they were charged."""
        self.settled = False


class Limiter:
    """The accounts of all callers of all groups that have limits."""

    def __init__(self, began: float = -inf) -> None:
        self.began = began
        """Time at which the router started."""
        self.epoch = 0.0
        """Seconds since the epoch at the monotonic time 0."""
        self.routers = 1
        """Routers that share the limits, this one among them."""
        self.heard = inf
        """Arrival time of the last message of the peer whose last message is the oldest."""
        self._accounts: OrderedDict[int, Account] = OrderedDict()
        """Key → account, the longest silent first, to `SILENT_SECONDS`."""
        self._named: dict[str, dict[str, Account]] = {}
        """Group → caller → their account, if this router has admitted some request of theirs."""
        self._changed: dict[int, Account] = {}
        """The accounts that are still to be reported, by their keys."""
        self._parted = PartedPeers()

    # --- One request ---------------------------------------------------------------------------------------------

    def admit(
        self,
        group: str,
        caller: str,
        limits: CallerLimits,
        *,
        prompt: int,
        longest: int,
        stated: bool = True,
        now: float,
    ) -> Charge | None:
        """Charge a request; None where there is nothing to count.

        Args:
            group: the group's label.
            caller: the caller's name; anonymous callers share one account.
            limits: the caller's limits.
            prompt: estimated tokens of the prompt.
            longest: most tokens that its answers may have, or that are reserved where the request states no length.
            stated: whether the request states a length; else answers may be longer, and the longest recent answer
                counts if it was longer.
            now: monotonic seconds.

        Raises:
            ApiError: 429: a limit is reached.
        """
        if not (limits.requests_per_minute or limits.tokens_per_minute or limits.in_flight or limits.tokens_per_day):
            return None
        callers = self._named.get(group)
        account = callers.get(caller) if callers is not None else None
        if account is None:
            account = self._open(group, caller)
        if now >= account.until:
            self._move(account, now)
        if account.most != limits.tokens_per_minute:
            account.bound(limits.tokens_per_minute, now)
        if account.telling or account.fresh:
            account.confirm(self.heard - SETTLE_SECONDS)
        reserved = prompt + longest
        if not stated and account.longest > longest:
            reserved = prompt + int(account.longest)
        if most := limits.in_flight:
            running = account.in_flight
            left = most - running - account.peer_in_flight
            # a share of the remainder, rounded up as such limits are small: the others may begin as many before they
            # report it
            if left < 1 or (running - account.told_in_flight) * (self.routers - 1) >= left:
                raise self._refusal(account, limits, f"{most} requests at a time", kind=_REQUESTS, wait=1.0, now=now)
        if most := limits.requests_per_minute:
            left = most - account.minute_requests
            untold = account.spent_requests - account.told_requests
            if left < 1 or (self.routers > 1 and self._others_may_use(left + account.fresh_requests, 1, untold)):
                wait = _SHARE_SECONDS if left >= 1 else account.seconds_until(requests=1 - left, now=now)
                raise self._refusal(account, limits, f"{most} requests a minute", kind=_REQUESTS, wait=wait, now=now)
        if limits.tokens_per_minute or limits.tokens_per_day:
            reserved = self._reserve(account, limits, prompt, reserved, now)
        account.spend(1, reserved)
        account.in_flight += 1
        account.spent_requests += 1
        account.spent_tokens += reserved
        self._change(account)
        charge = Charge(account, limits, reserved, prompt, account.slice)
        account.open_tokens += charge.open
        return charge

    def _reserve(self, account: Account, limits: CallerLimits, prompt: int, desired: int, now: float) -> int:
        """Return the tokens that are reserved for a request: those that it wants, or what is left of a limit.

        Raises:
            ApiError: 429: its prompt does not fit.
        """
        reserved, untold, alone = desired, account.spent_tokens - account.told_tokens, self.routers == 1
        if most := limits.tokens_per_minute:
            left = most - account.minute_tokens
            reserved = min(reserved, left)
            # a prompt that is larger than the limit itself would never be admitted
            if left < 1 or (left < prompt and left < most):
                wait = account.seconds_until(tokens=min(most, max(prompt, 1)) - left, now=now)
                raise self._no_tokens(account, limits, left, prompt, f"{most} tokens a minute", wait=wait, now=now)
            if not alone and self._others_may_use(left + account.fresh_tokens, reserved, untold):
                wait = _SHARE_SECONDS
                raise self._refusal(account, limits, f"{most} tokens a minute", kind=_TOKENS, wait=wait, now=now)
        if most := limits.tokens_per_day:
            left = most - account.day_tokens
            reserved = min(reserved, left)
            if left < 1 or (left < prompt and left < most):
                wait = DAY_SECONDS - (now + self.epoch) % DAY_SECONDS
                raise self._no_tokens(account, limits, left, prompt, f"{most} tokens a day", wait=wait, now=now)
            if not alone and self._others_may_use(left + account.fresh_tokens, reserved, untold):
                wait = _SHARE_SECONDS
                raise self._refusal(account, limits, f"{most} tokens a day", kind=_TOKENS, wait=wait, now=now)
        return reserved

    def _no_tokens(
        self, account: Account, limits: CallerLimits, left: int, prompt: int, subject: str, *, wait: float, now: float
    ) -> ApiError:
        """Return the refusal of a prompt that does not fit into what is left; running answers may give enough back."""
        if left < prompt <= left + account.open_tokens or left < 1 <= left + account.open_tokens:
            wait = min(wait, _SETTLED_SECONDS)
        return self._refusal(account, limits, subject, kind=_TOKENS, wait=wait, now=now)

    def _others_may_use(self, left: int, room: int, untold: int) -> bool:
        """Return True if a request has to wait for the reports of other routers.

        Args:
            left: the remainder of the limit before the latest reported charges of the others.
            room: the requests or tokens that the request needs.
            untold: the charges of this router that the others have not received yet.
        """
        return untold > 0 and (untold + room) * self.routers > left + untold

    def settle(self, charge: Charge, usage: Usage | None, now: float, seen: int = UNSEEN) -> None:
        """Replace the estimate of a finished request by the usage that its engine reported, or by the counted events.

        Args:
            charge: the charge.
            usage: the tokens that the engine has reported; None if it did not.
            now: monotonic seconds.
            seen: events of the answer. If they were not counted, the estimate stays: all of it may have been computed.
        """
        if charge.settled:
            return
        if usage is not None:
            self._correct(charge, usage.prompt_tokens + usage.completion_tokens, usage.completion_tokens, now)
        elif seen != UNSEEN:
            self._correct(charge, charge.prompt + seen, seen, now)
        self._end(charge)

    def give_back(self, charge: Charge, now: float) -> None:
        """Take back the tokens of a request that no engine has served; it counts as a request."""
        if not charge.settled:
            self._correct(charge, 0, 0, now)
            self._end(charge)

    def _correct(self, charge: Charge, used: int, answer: int, now: float) -> None:
        """Replace the reserved tokens of a request by the tokens that it has used, of prompt and answers."""
        account, more = charge.account, used - charge.reserved
        if now >= account.until:
            self._move(account, now)
        if answer > account.longest:
            account.longest = float(answer)
        account.spent_tokens += more
        if more > 0:
            account.spend(0, more)
            account.hold()
        else:
            account.take_back(-more, charge.used)

    def _end(self, charge: Charge) -> None:
        charge.settled = True
        charge.account.in_flight -= 1
        charge.account.open_tokens -= charge.open
        self._change(charge.account)

    def _change(self, account: Account) -> None:
        """Schedule the report of a changed account to peers."""
        # an account that was evicted while its request was served may have been opened anew
        if account.ticks < REPEATS and self._accounts.get(account.key) is account:
            account.ticks = REPEATS
            self._changed[account.key] = account

    # --- Header fields for callers -----------------------------------------------------------------------------------

    def headers(self, charge: Charge, now: float) -> list[Field]:
        """Return the fields in which OpenAI's clients read limits and their remainders."""
        return fields_of(self.lines(charge, now))

    def lines(self, charge: Charge, now: float) -> bytes:
        """Return the lines of these fields, without the end of the last; empty without such limits."""
        account, limits = charge.account, charge.limits
        if now >= account.until:
            self._move(account, now)
        if limits is not account.limits:
            _begin(account, limits)
        requests = limits.requests_per_minute - account.minute_requests
        tokens = limits.tokens_per_minute - account.minute_tokens
        if requests > 0 and tokens > 0:  # most answers
            return b"%b%d\r\n%b%d" % (account.requests_line, requests, account.tokens_line, tokens)
        lines = []
        if most := limits.requests_per_minute:
            lines.append(
                b"%b%d" % (account.requests_line, requests)
                if requests > 0
                else _none_left(most, b"requests", account.seconds_until(requests=1 - requests, now=now))
            )
        if most := limits.tokens_per_minute:
            lines.append(
                b"%b%d" % (account.tokens_line, tokens)
                if tokens > 0
                else _none_left(most, b"tokens", account.seconds_until(tokens=1 - tokens, now=now))
            )
        return b"\r\n".join(lines)

    def _refusal(
        self, account: Account, limits: CallerLimits, subject: str, *, kind: str, wait: float, now: float
    ) -> ApiError:
        seconds = max(1, ceil(wait))
        if wait <= WINDOW_SECONDS + SLICE_SECONDS:
            seconds = min(seconds, MOST_RETRY_SECONDS)
        return ApiError(
            429,
            f"the caller has reached its limit of {subject} in this group: retry in {seconds} s",
            code="rate_limit_exceeded" if kind == _REQUESTS else "tokens_exceeded",
            retry_after=seconds,
            further=self.headers(Charge(account, limits, 0, 0, account.slice), now),
        )

    # --- Peers -----------------------------------------------------------------------------------------------------

    def export(self, now: float) -> list[SpendReport]:
        """Return the reports for peers in this tick, and drop the records of peers that have been silent for long."""
        self._parted.forget(now)
        reports = []
        for key, account in list(islice(self._changed.items(), REPORTS_A_TICK)):
            del self._changed[key]
            account.ticks -= 1
            if self._accounts.get(key) is not account:
                continue
            if account.ticks:
                self._changed[key] = account  # behind the others, which wait for their turn
            if now >= account.until:
                self._move(account, now)
            reports.append(account.report(now))
        return reports

    def announce(self) -> None:
        """Schedule reports of all accounts: another router has started."""
        self._changed = dict(self._accounts)
        for account in self._accounts.values():
            account.ticks = REPEATS

    def merge(self, sender: int, reports: Sequence[SpendReport], now: float) -> None:
        """Take in what a peer has charged since its last report."""
        for report in reports:
            account = self._account(report.account)
            if now >= account.until:
                self._move(account, now)
            account.confirm(self.heard - SETTLE_SECONDS)
            peer, older = account.peers.get(sender), 0
            if peer is not None:
                requests, tokens = report.requests - peer.requests, report.tokens - peer.tokens
                account.peer_in_flight -= peer.in_flight
            elif (parted := self._parted.rejoin(sender, report.account)) is not None:
                before, silence, today = parted.report, now - parted.at, (now + self.epoch) % DAY_SECONDS
                requests, meanwhile = report.requests - before.requests, report.tokens - before.tokens
                requests = of_last_minute(requests, silence, report.minute_requests, account.minute_requests)
                minute = account.minute_tokens + account.debt
                tokens = of_last_minute(meanwhile, silence, report.minute_tokens, minute)
                older = min(of_last(today, meanwhile, silence), report.day_tokens) - tokens
            elif now - self.began < WINDOW_SECONDS:
                # this router has just started: the peer's sums include the use before
                requests, tokens = _taken_over(report, account)
                older = -max(0, min(tokens, account.assumed))
                account.assumed += older
            else:
                requests = min(report.requests, report.minute_requests)
                tokens = min(report.tokens, report.minute_tokens)
            account.peers[sender] = report
            if (requests or tokens or peer is None or peer.in_flight != report.in_flight) and not account.ticks:
                # an acknowledgement of the peer's report; it contains no new charges, so that no further report follows
                account.ticks = 1
                self._changed[account.key] = account
            account.peer_in_flight += report.in_flight
            # a peer's values are bounded: a report can neither take back requests nor block for long
            account.hear(max(0, min(requests, MOST_AT_ONCE)), max(0, min(tokens, MOST_AT_ONCE)), now)
            if tokens < 0:
                account.take_back_from_latest(min(-tokens, MOST_AT_ONCE))
            account.day_tokens = max(0, account.day_tokens + max(-MOST_AT_ONCE, min(older, MOST_AT_ONCE)))
            account.hold()
            if not account.most:
                account.heard, account.heard_at = report.minute_tokens, now
            if peer is None and report.day_tokens > account.day_tokens:
                account.assumed += report.day_tokens - account.day_tokens
                account.day_tokens = report.day_tokens

    def drop_peer(self, sender: int, now: float) -> None:
        """Drop the in-flight requests of a peer that has fallen silent; its charges stay in force."""
        reports = {}
        for account in self._accounts.values():
            peer = account.peers.pop(sender, None)
            if peer is not None:
                account.peer_in_flight -= peer.in_flight
                reports[account.key] = peer
        self._parted.part(sender, reports, now)

    # --- Accounts --------------------------------------------------------------------------------------------------

    def _open(self, group: str, caller: str) -> Account:
        """Return the account of a caller who is new to this router."""
        account = self._account(xxhash.xxh3_64_intdigest(f"{group}\0{caller}".encode()))
        account.names = group, caller
        self._named.setdefault(group, {})[caller] = account
        return account

    def _account(self, key: int) -> Account:
        account = self._accounts.get(key)
        if account is None:
            account = self._accounts[key] = Account(key)
            if len(self._accounts) > MOST_ACCOUNTS:
                _, silent = self._accounts.popitem(last=False)
                if silent.names is not None:
                    self._forget(*silent.names)
        return account

    def _forget(self, group: str, caller: str) -> None:
        callers = self._named[group]
        del callers[caller]
        if not callers:
            del self._named[group]

    def _move(self, account: Account, now: float) -> None:
        account.move(now, int((now + self.epoch) // DAY_SECONDS))
        if now >= account.silent_from:
            account.silent_from = now + SILENT_SECONDS
            if account.key in self._accounts:  # it may have been evicted while its request was served
                self._accounts.move_to_end(account.key)


def _taken_over(report: SpendReport, account: Account) -> tuple[int, int]:
    """Return the requests and tokens of a peer's first report that this newly started router has not counted.

    All that a peer has charged since it started is its own, and new here, if it fits into the last minute. Else the
    minute of all routers counts, less the sums of this router; the peer may not have received the latest charges of
    this router.
    """
    requests, tokens = report.requests, report.tokens
    if requests > report.minute_requests:
        untold = account.spent_requests - account.told_requests
        requests = report.minute_requests - account.minute_requests + untold
    if not 0 <= tokens <= report.minute_tokens:
        untold = account.spent_tokens - account.told_tokens
        tokens = max(0, report.minute_tokens - account.minute_tokens - account.debt + untold)
    return requests, tokens


def _begin(account: Account, limits: CallerLimits) -> None:
    """Store the beginnings of an account's header lines, which are used while these limits are not exhausted."""
    account.limits = limits
    account.requests_line = _LEFT % (b"requests", limits.requests_per_minute, b"requests", b"requests")
    account.tokens_line = _LEFT % (b"tokens", limits.tokens_per_minute, b"tokens", b"tokens")


def _none_left(limit: int, kind: bytes, wait: float) -> bytes:
    return _NONE_LEFT % (kind, limit, kind, ceil(wait), kind)
