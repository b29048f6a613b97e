"""Estimates the load of each replica and the content of its cache.

Engines compute prompts first come, first served. A first token therefore shows that everything sent before it is
computed, and the backlog needs no list of requests: `queued` sums the predicted seconds of prefill ever sent, a request
stores the sum at its own position, and its first token moves `done` up to that value. A first token that never arrives
(an answer that is not streamed, a client that disconnected) is made up for by the next one.

Does no I/O and reads no clock; `now` is in monotonic seconds.
"""

import math
from collections import deque

from promptgroup_router.apis.session_key import SessionKey
from promptgroup_router.policy.costs import EngineCosts
from promptgroup_router.policy.demand import Demand
from promptgroup_router.policy.gossip import REPEATS, REPORT_SECONDS, LoadReport
from promptgroup_router.policy.working_set import WorkingSet
from promptgroup_router.prefixes.cached_prefixes import CachedPrefixes
from promptgroup_router.rings.ids import MemberHash, PrefixKey

FEW_PEERS = 4
"""Number of peers up to which all reports are added up anew whenever one of them reports."""
UNSEEN_DELAY = 0.01
"""Seconds by which an overdue first token counts for more than its predicted prefill before there has been any first
token. It is more than the advantage of a home (`expected_ttft.MARGIN`): otherwise a burst of very short requests that
begin alike would all go to one engine, whose answers, and so whose next turns, would all come at once."""


class PendingPrefill:
    """A request that waits for its first token."""

    __slots__ = ("due", "mark", "predicted", "seconds", "settled", "tokens")

    def __init__(self, seconds: float, tokens: float, mark: float, now: float, predicted: float) -> None:
        self.seconds = seconds
        """Predicted seconds of prefill."""
        self.tokens = tokens
        """Tokens of its prompt."""
        self.mark = mark
        """Value of `queued` at its position in the backlog."""
        self.predicted = predicted
        """Predicted seconds from sending it to its first token."""
        self.due = now + predicted
        """Time at which its first token is expected."""
        self.settled = False
        """True once the first token has arrived or cannot arrive any more."""


class ReplicaLoad:
    """The load of one engine process behind a slot, estimated from the requests of this router and its peers."""

    __slots__ = (
        "alive_at",
        "answers",
        "context",
        "costs",
        "done",
        "in_flight",
        "incarnation",
        "inherited",
        "key",
        "live",
        "peer_context",
        "peer_in_flight",
        "peer_pending",
        "peer_unplaced",
        "peer_waiting",
        "peer_written",
        "peers",
        "pending",
        "prefixes",
        "queued",
        "since",
        "step",
        "ticks",
        "unheard",
        "unplaced",
        "waiting",
        "written",
    )  # fmt: skip

    def __init__(self, key: MemberHash, incarnation: str, costs: EngineCosts, now: float) -> None:
        self.key = key
        """Hash of the member's id."""
        self.incarnation = incarnation
        self.inherited = -math.inf
        """Time at which the process took over the slot from another one that served until then; minus infinity if the
        slot was empty."""
        self.costs = costs
        self.in_flight = 0
        """Requests of this router in flight."""
        self.context = 0.0
        """Tokens of these requests."""
        self.queued = 0.0
        """Predicted seconds of prefill of all requests that this router has ever sent."""
        self.done = 0.0
        """Part of `queued` that is computed, as first tokens have shown."""
        self.since = now
        """Time of the last sign of progress: a first token, or the moment when the replica became busy."""
        self.alive_at = now
        """Time at which this router last saw that the engine is not stuck: a first token, the end of an answer, or the
        moment when the first of the requests that wait now was sent."""
        self.written = 0.0
        """Tokens newly written into its cache by this router's requests."""
        self.answers: deque[PendingPrefill] = deque()
        """Requests that wait for their first token, in the order in which they were sent."""
        self.prefixes = CachedPrefixes()
        """The prefixes that are expected in its cache: Tier 1, and longer ones."""
        self.live = WorkingSet()
        """The live sessions of the process."""
        self.peers: dict[int, tuple[LoadReport, float, float]] = {}
        """Peer → its latest report, the tokens that it is assumed to have written since its first report, and the time
        of the latest report."""
        self.waiting = 0
        """Streamed requests of this router that wait for their first token."""
        self.unplaced = 0.0
        """Unshared tokens of this router's sessions that have no recorded placement yet, because their first token has
        not arrived. `live` includes them, but not those of peers (`peer_unplaced`)."""
        self.peer_unplaced = 0
        self.unheard = 0
        """Tokens of prefixes that peers have reported but not yet counted as written."""
        self.peer_in_flight = 0
        self.peer_context = 0
        self.peer_waiting = 0
        self.peer_pending = 0.0
        self.peer_written = 0.0
        self.pending = 0.0
        """Predicted seconds of prefill, of all routers, that no first token has shown to be computed."""
        self.step = costs.overhead
        """Predicted seconds of one step with the current load."""
        self.ticks = REPEATS
        """Remaining ticks in which peers are sent the report that this router has no request there."""

    def begin(self, costs: EngineCosts, now: float) -> None:
        """Start the estimate now, with these costs."""
        self.costs, self.step, self.since = costs, costs.overhead, now

    @property
    def load(self) -> int:
        """Requests in flight, of all routers."""
        return self.in_flight + self.peer_in_flight

    @property
    def queue(self) -> int:
        """Requests of all routers that wait for their first token."""
        return self.waiting + self.peer_waiting

    @property
    def admitted(self) -> float:
        """Tokens of all live sessions, including those of peers whose placements are not reported yet."""
        return self.live.tokens + self.peer_unplaced

    @property
    def tokens_written(self) -> float:
        """Tokens newly written by all routers, as far as reported: the clock by which the cache ages."""
        return self.written + self.peer_written

    def wait(self, now: float) -> float:
        """Return the seconds until everything sent there is computed.

        While first tokens are due, the time since the last one has computed no more than one step, or the oldest
        prompt. An engine whose KV cache is full of running requests computes nothing, and its backlog stays. With
        peers, whose oldest prompts are not known, it runs off with time.
        """
        if self.pending <= 0:
            return 0.0
        elapsed = now - self.since
        costs = self.costs
        if elapsed * costs.rate > costs.step_tokens and self.waiting and not self.peers:
            elapsed = min(elapsed, max(costs.step_tokens / costs.rate, self._oldest()))
        left = self.pending - elapsed
        return left if left > 0 else 0.0

    def _oldest(self) -> float:
        """Return the predicted seconds of prefill of the oldest request without a first token."""
        answers = self.answers
        while answers and answers[0].settled:
            answers.popleft()
        return answers[0].seconds if answers else 0.0

    def late(self, now: float) -> float:
        """Return by how many seconds this router's oldest first token is overdue, beyond its engines' usual delay.

        Its delay holds up all later requests for about as long again. A usual delay says nothing about this replica,
        because predictions are inaccurate for all replicas: a session must not leave its cache for noise. Nor does the
        delay of an engine that shows signs of life: it has work, which leaving would only increase elsewhere. So the
        delay counts at most as the time since the last sign.

        Before any engine of its kind has sent a first token, the rate may be wrong for all of them, and a copy would be
        as late as this one. So the delay counts at most as the predicted prefill, and UNSEEN_DELAY: new prompts are
        spread, and requests stay with their prefixes.
        """
        answers = self.answers
        while answers and answers[0].settled:
            answers.popleft()
        if not answers:
            return 0.0
        oldest, costs = answers[0], self.costs
        if not costs.seen:
            return max(0.0, min(now - oldest.due, oldest.seconds + UNSEEN_DELAY))
        return max(0.0, min(now - oldest.due - costs.usual_delay(oldest.predicted), now - self.alive_at))

    def send(self, seconds: float, tokens: float, now: float, *, streamed: bool, copy: float = 0.0) -> PendingPrefill:
        """Count a request with `seconds` of predicted prefill and a prompt of `tokens`.

        `copy` is the seconds of a copy from a KV tier, which runs beside the backlog and is no work of the engine.
        """
        wait = self.wait(now)
        if wait == 0:
            # idle, or slower than predicted: in both cases the backlog begins with this request
            self.done = self.queued
            self.since = now
        costs = self.costs
        steps = 1 + (wait + seconds) * costs.rate / costs.step_tokens
        self.queued += seconds
        sent = PendingPrefill(seconds, tokens, self.queued, now, max(wait, copy) + seconds + steps * self.step)
        if streamed:
            if not self.waiting:
                self.alive_at = now
            self.answers.append(sent)
            self.waiting += 1
        else:
            sent.settled = True  # its first byte is not that of its first token
        self.in_flight += 1
        self.context += tokens
        self._add_up()
        return sent

    def progress(self, sent: PendingPrefill, now: float) -> None:
        """Record the first token of a request."""
        if sent.settled:
            return
        sent.settled = True
        self.waiting -= 1
        self.alive_at = now
        self.costs.observe_delay(now - sent.due, sent.predicted)
        self.done = max(self.done, min(sent.mark, self.queued))
        self.since = now
        self.pending = self.queued - self.done + self.peer_pending

    def leave(self, sent: PendingPrefill, answered: float = -math.inf) -> None:
        """Remove a request that has ended, with or without a first token; at `answered` if its answer is complete."""
        self.alive_at = max(self.alive_at, answered)
        if not sent.settled:
            sent.settled = True
            self.waiting -= 1
            if sent.mark > self.done:
                self.queued = max(self.done, self.queued - sent.seconds)
        self.in_flight -= 1
        self.context = self.context - sent.tokens if self.in_flight else 0.0
        self._add_up()

    def use(self, demand: Demand) -> None:
        """Record the prefixes of a request that is sent there; if it is cancelled, `prefixes.drop` removes them."""
        begin = demand.unmarked
        if demand.marks:
            self.prefixes.use_all(demand.marks, demand.lengths, begin)
        if begin:
            self.prefixes.use(demand.prefix, begin)

    def touch(self, prefix: PrefixKey, tokens: int) -> None:
        """Record that a Tier-1 prefix was used or warmed there."""
        self.prefixes.use(prefix, tokens)
        self.wrote(0)

    def heard(self, prefix: PrefixKey, tokens: int) -> None:
        """Record that a peer has sent a request with a prefix there, which has `tokens` beyond the next shorter one."""
        if prefix not in self.prefixes:
            self.unheard = min(self.unheard + tokens, self.costs.kv_tokens)
        self.touch(prefix, tokens)

    def wrote(self, tokens: int) -> None:
        """Record that tokens were written into its cache which no other request is known to share."""
        self.prefixes.write(tokens)
        self.prefixes.evict(self.costs.kv_tokens)

    def space_for(self, session: SessionKey) -> float:
        """Return the tokens of its cache that requests of other sessions leave: a session can have no more there."""
        return self.costs.kv_tokens - self.live.running_beside(session) - self.peer_unplaced

    def shared(self, demand: Demand, *, been: bool) -> int:
        """Return the tokens of a request that other sessions have computed there: Tier 1, or a longer cached prefix.

        If the session was there before (`been`), a longer cached prefix may be its own, so it does not count.
        """
        if not demand.marks:
            return demand.tier1
        known = self.live.shared(demand.session)
        if known < 0 and not been:
            longest = self.prefixes.longest(demand.marks)
            known = demand.lengths[longest - 1] if longest else 0
        return max(demand.tier1, known)

    def export(self, now: float) -> LoadReport:
        """Return this router's share of the load, as a report for peers."""
        return LoadReport(
            self.key, self.in_flight, int(self.context), self.queued - self.done, now - self.since, int(self.written),
            int(self.unplaced), self.waiting,
        )  # fmt: skip

    def merge(self, peer: int, load: LoadReport, now: float) -> None:
        """Merge the load that a peer reports."""
        known = self.peers.get(peer)
        written = 0.0
        if known is not None:
            # a falling count is ignored, and growth is limited to the whole cache at once
            grown = min(max(0, load.written - known[0].written), self.costs.kv_tokens)
            written = known[1] + grown
            self.costs.in_use.write(grown)
            # tokens written beyond the reported prefixes are ends of prompts and answers
            prefixes = min(grown, self.unheard)
            self.unheard -= prefixes
            self.wrote(grown - prefixes)
        self.peers[peer] = (load, written, now)
        self.since = max(self.since, now - load.age)
        if known is not None and len(self.peers) > FEW_PEERS:
            self._replace_peer(known[0], load, written - known[1])
        else:
            self._add_up_peers()

    def _replace_peer(self, load_report: LoadReport, load: LoadReport, written: float) -> None:
        """Replace a peer's previous report by its new one, and count `written` more tokens as written.

        A hundred routers receive each other's reports twenty times a second, and all reports would be added up each
        time. Each tick adds them up anew, so that rounding errors do not accumulate.
        """
        most = self.costs.kv_tokens
        self.peer_in_flight += load.in_flight - load_report.in_flight
        self.peer_context += load.context - load_report.context
        self.peer_pending += load.pending - load_report.pending
        self.peer_unplaced += min(load.unplaced, most) - min(load_report.unplaced, most)
        self.peer_written += written
        self.peer_waiting += load.waiting - load_report.waiting
        self._add_up()

    def drop_peer(self, peer: int) -> None:
        """Drop the load of a peer that has left; the tokens that it wrote into the cache still count."""
        gone = self.peers.pop(peer, None)
        if gone is not None:
            self.written += gone[1]
            self._add_up_peers()

    def expire_peers(self, now: float) -> None:
        """Drop the requests of peers whose reports were not renewed; the tokens that they have written still count."""
        for peer, (load, written, heard) in self.peers.items():
            if now - heard > REPORT_SECONDS:
                self.peers[peer] = (
                    load._replace(in_flight=0, context=0, pending=0.0, unplaced=0, waiting=0),
                    written,
                    heard,
                )
        self._add_up_peers()

    def _add_up_peers(self) -> None:
        self.peer_in_flight = self.peer_context = self.peer_unplaced = self.peer_waiting = 0
        self.peer_pending = self.peer_written = 0.0
        for load, written, _ in self.peers.values():
            self.peer_in_flight += load.in_flight
            self.peer_context += load.context
            self.peer_pending += load.pending
            self.peer_unplaced += min(load.unplaced, self.costs.kv_tokens)
            self.peer_written += written
            self.peer_waiting += load.waiting
        self._add_up()

    def _add_up(self) -> None:
        costs = self.costs
        self.pending = self.queued - self.done + self.peer_pending
        self.step = (
            costs.overhead
            + costs.sequence * (self.in_flight + self.peer_in_flight)
            + costs.context * (self.context + self.peer_context)
        )
