"""Holds callers to their limits: requests and tokens a minute, requests at a time, tokens a day.

A request is charged as it is admitted, with its prompt and the longest answer that it may have; the tokens that the
engine reports settle it. Nothing that a caller has done before makes that less, or short answers would open the limit
for long ones. A request is admitted if its prompt fits. If its longest answer does not, what is left is reserved, and
nobody else is admitted meanwhile: so a minute has at most the limit and one request, and more only where answers
without a stated length are longer than was reserved for them. What is beyond the limit is paid in the next windows
(`account`). Windows slide, so that all of it holds wherever a minute begins.

Routers tell each other what they have charged (`SpendReport`) in each tick of their exchange, as counters that only the
difference to the last report is taken of, so that a lost report does no harm. What the others have charged of late is
not known: a burst keeps all routers busy, and their reports wait behind it. So a router charges at most its share of
what is left, by the number of routers, and one request in any case. Of what is left then it charges a share again once
all others were heard `SETTLE_SECONDS` after the first was told. So a limit is exceeded by at most one request for each
further router. What a router has charged stays charged when it is gone; one that starts takes over what the
others know.
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

DAY_SECONDS = 86400
MOST_ACCOUNTS = 20_000
"""Most callers of groups whose use is remembered; of more the longest silent are forgotten."""
REPEATS = 3
"""Ticks in which a change is told: two datagrams in a row may be lost."""
SETTLE_SECONDS = 1.0
"""Time from a report to the moment at which a peer that is heard knows it, and has told what it had charged before:
more than a burst holds a loop."""
REPORTS_A_TICK = 240
"""Most reports of one tick; the others wait for the next one."""
MOST_AT_ONCE = 10**9
"""Most requests or tokens that a peer is believed to have charged between two reports."""
MOST_RETRY_SECONDS = 60
"""Longest `Retry-After` of a minute's limit: the SDKs of OpenAI and Anthropic pass over a longer one, and come back
within seconds. A slice more may have to pass, and the request then waits for another second."""

SILENT_SECONDS = 5.0
"""Precision of the time for which an account has been silent."""

_REQUESTS, _TOKENS = "requests", "tokens"
_LEFT = b"x-ratelimit-limit-%b: %d\r\nx-ratelimit-reset-%b: 0s\r\nx-ratelimit-remaining-%b: "
_NONE_LEFT = b"x-ratelimit-limit-%b: %d\r\nx-ratelimit-reset-%b: %ds\r\nx-ratelimit-remaining-%b: 0"
_SHARE_SECONDS = 0.1
"""Wait for what other routers may be using: the next tick tells."""
_SETTLED_SECONDS = 1.0
"""Wait for what is reserved for answers that have not ended."""

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
        """Those of the reserved tokens that may come back."""
        self.used = used
        """Where they were charged."""
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
        """Time at which that router of the others was heard that was heard the longest ago."""
        self._accounts: OrderedDict[int, Account] = OrderedDict()
        """Key → account, the longest silent first, to `SILENT_SECONDS`."""
        self._named: dict[str, dict[str, Account]] = {}
        """Group → caller → their account, if this router has admitted some request of theirs."""
        self._changed: dict[int, Account] = {}
        """The accounts that are still to be told of, by their keys."""
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
            caller: the caller's name; those who are not known share one account.
            limits: the caller's limits.
            prompt: estimated tokens of the prompt.
            longest: most tokens that its answers may have, or that are reserved where it does not say.
            stated: whether it says; else answers may be longer, and the longest of late counts where it was.
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
            # of what is left, a share, rounded up as such limits are small: the others may begin as many untold
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
        """Return True if a request has to wait for what other routers tell.

        Args:
            left: what was left of the limit before the others charged what they have told of late.
            room: what the request needs.
            untold: what this router has used, and the others have not been told of yet.
        """
        return untold > 0 and (untold + room) * self.routers > left + untold

    def settle(self, charge: Charge, usage: Usage | None, now: float, seen: int = UNSEEN) -> None:
        """Replace the estimate of a request that is over by what the engine reported, or by what was seen of it.

        Args:
            charge: the charge.
            usage: the tokens that the engine has told; None if it did not.
            now: monotonic seconds.
            seen: events of the answer. Of one that nobody has seen the estimate stays: all of it may be computed.
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
        """Charge what a request has used in place of what was reserved, its answers' tokens among it."""
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
        """Have peers told of an account that has changed."""
        # one that was forgotten while its request was served may have been opened anew
        if account.ticks < REPEATS and self._accounts.get(account.key) is account:
            account.ticks = REPEATS
            self._changed[account.key] = account

    # --- What callers are told -----------------------------------------------------------------------------------

    def headers(self, charge: Charge, now: float) -> list[Field]:
        """Return the fields by which OpenAI's clients read limits and what is left of them."""
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
        """Return what peers are to be told in this tick, and forget those that have been silent for long."""
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
        """Tell everything once more: a router has started."""
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
                # this router has just started: the peer knows what was used before
                requests, tokens = _taken_over(report, account)
                older = -max(0, min(tokens, account.assumed))
                account.assumed += older
            else:
                requests = min(report.requests, report.minute_requests)
                tokens = min(report.tokens, report.minute_tokens)
            account.peers[sender] = report
            if (requests or tokens or peer is None or peer.in_flight != report.in_flight) and not account.ticks:
                # an answer, by which the peer knows that it was heard; what it says is no news, so that none follows
                account.ticks = 1
                self._changed[account.key] = account
            account.peer_in_flight += report.in_flight
            # a peer is believed only so far: what it says can neither take back requests nor block for long
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
        """Forget the requests that a peer had in flight, which has fallen silent; what it has charged stays charged."""
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
            if account.key in self._accounts:  # it may have been forgotten while its request was served
                self._accounts.move_to_end(account.key)


def _taken_over(report: SpendReport, account: Account) -> tuple[int, int]:
    """Return the requests and tokens of a peer's first report that this router, which has just started, does not know.

    All that a peer has charged since it started is its own, and new here, if it fits into the last minute. Else the
    minute of all routers counts, beside what is known here; the peer may not have been told of this router's latest.
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
    """Keep what the lines of an account begin with while something is left of these limits."""
    account.limits = limits
    account.requests_line = _LEFT % (b"requests", limits.requests_per_minute, b"requests", b"requests")
    account.tokens_line = _LEFT % (b"tokens", limits.tokens_per_minute, b"tokens", b"tokens")


def _none_left(limit: int, kind: bytes, wait: float) -> bytes:
    return _NONE_LEFT % (kind, limit, kind, ceil(wait), kind)


def fields_of(lines: bytes) -> list[Field]:
    """Return the fields of lines that `Limiter.lines` has written."""
    parts = (line.partition(b": ") for line in lines.split(b"\r\n") if line)
    return [(name, value) for name, _, value in parts]
