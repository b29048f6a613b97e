"""What routers have put on each replica, and what its cache should hold by now. Pure; `now` in monotonic seconds.

Engines compute prompts first come, first served. So a first token says that all that was sent before it is computed,
and the backlog needs no list of requests: `queued` counts the predicted seconds of prefill ever sent, a request
remembers how far the count was with itself in it, and its first token moves `done` up to there. A first token that
never comes (an answer that is not streamed, a client that left) is caught up by the next.
"""

import math
from collections import OrderedDict, deque

from promptgroup_router.policy.costs import EngineCosts
from promptgroup_router.policy.gossip import LoadReport
from promptgroup_router.policy.working_set import WorkingSet

PREFIXES = 4096
"""Prefixes remembered a replica; those that its cache can hold are far fewer."""


class PendingPrefill:
    """A request on its way to its first token."""

    __slots__ = ("due", "mark", "seconds", "settled", "tokens")

    def __init__(self, seconds: float, tokens: float, mark: float, due: float) -> None:
        self.seconds = seconds
        """Predicted prefill."""
        self.tokens = tokens
        """Length of its prompt."""
        self.mark = mark
        """What `queued` was with it."""
        self.due = due
        """When its first token should come."""
        self.settled = False
        """Whether it has come, or never will."""


class ReplicaLoad:
    """One engine process behind a slot, as this router and its peers know it."""

    __slots__ = (
        "answers",
        "context",
        "costs",
        "done",
        "idle_exported",
        "in_flight",
        "incarnation",
        "inherited",
        "key",
        "live",
        "peer_context",
        "peer_in_flight",
        "peer_pending",
        "peer_written",
        "peers",
        "pending",
        "prefixes",
        "queued",
        "since",
        "step",
        "written",
    )  # fmt: skip

    def __init__(self, key: int, incarnation: str, costs: EngineCosts, now: float) -> None:
        self.key = key
        """Hash of the member's id."""
        self.incarnation = incarnation
        self.inherited = -math.inf
        """When it took the slot over from another process that served until then; never, if the slot was empty."""
        self.costs = costs
        self.in_flight = 0
        """Requests of this router."""
        self.context = 0.0
        """Tokens of these requests."""
        self.queued = 0.0
        """Seconds of predicted prefill ever sent by this router."""
        self.done = 0.0
        """How far `queued` is known to be computed."""
        self.since = now
        """The last sign of progress: a first token, or the moment when it became busy."""
        self.written = 0.0
        """Tokens newly written into its cache by this router's requests."""
        self.answers: deque[PendingPrefill] = deque()
        """Requests whose first token is still to come, in the order in which they were sent."""
        self.prefixes: OrderedDict[int, float] = OrderedDict()
        """Tier-1 prefix → what `tokens_written` was when it was last used there, the longest unused first."""
        self.live = WorkingSet()
        """Sessions that take turns there."""
        self.peers: dict[int, tuple[LoadReport, int]] = {}
        """Peer → what it said last, and its `written` when it was first heard."""
        self.peer_in_flight = 0
        self.peer_context = 0
        self.peer_pending = 0.0
        self.peer_written = 0.0
        self.pending = 0.0
        """Seconds of predicted prefill that are not known to be computed, of all routers."""
        self.step = costs.overhead
        """Seconds that one step takes with what runs there."""
        self.idle_exported = False
        """Whether the peers know that nothing is on it."""

    @property
    def load(self) -> int:
        """Requests there, of all routers."""
        return self.in_flight + self.peer_in_flight

    @property
    def tokens_written(self) -> float:
        """Tokens newly written by all routers, as far as known: the clock of its cache."""
        return self.written + self.peer_written

    def wait(self, now: float) -> float:
        """Seconds until what was sent there is computed."""
        left = self.pending - now + self.since
        return left if self.pending > 0 and left > 0 else 0.0

    def late(self, now: float) -> float:
        """Seconds that the oldest first token is overdue. What delays it delays all behind it, about as long again."""
        answers = self.answers
        while answers and answers[0].settled:
            answers.popleft()
        return max(0.0, now - answers[0].due) if answers else 0.0

    def send(self, seconds: float, tokens: float, now: float, *, streamed: bool) -> PendingPrefill:
        """Count a request with so much prefill and so long a prompt."""
        wait = self.wait(now)
        if wait == 0:
            # idle, or later than predicted: either way the clock begins with this request
            self.done = self.queued
            self.since = now
        costs = self.costs
        steps = 1 + (wait + seconds) * costs.rate / costs.step_tokens
        self.queued += seconds
        sent = PendingPrefill(seconds, tokens, self.queued, now + wait + seconds + steps * self.step)
        if streamed:
            self.answers.append(sent)
        else:
            sent.settled = True  # its first byte will say nothing about its first token
        self.in_flight += 1
        self.context += tokens
        self._add_up()
        return sent

    def progress(self, sent: PendingPrefill, now: float) -> None:
        """The request has its first token."""
        if sent.settled:
            return
        sent.settled = True
        self.done = max(self.done, min(sent.mark, self.queued))
        self.since = now
        self.pending = self.queued - self.done + self.peer_pending

    def leave(self, sent: PendingPrefill) -> None:
        """The request is over, with a first token or without."""
        if not sent.settled:
            sent.settled = True
            if sent.mark > self.done:
                self.queued = max(self.done, self.queued - sent.seconds)
        self.in_flight -= 1
        self.context = self.context - sent.tokens if self.in_flight else 0.0
        self._add_up()

    def touch(self, prefix: int) -> None:
        """A request with this prefix is sent there."""
        prefixes = self.prefixes
        prefixes[prefix] = self.tokens_written
        prefixes.move_to_end(prefix)
        if len(prefixes) > PREFIXES:
            prefixes.popitem(last=False)

    def export(self, now: float) -> LoadReport:
        """What peers should know of this router's part."""
        return LoadReport(
            self.key, self.in_flight, int(self.context), self.queued - self.done, now - self.since, int(self.written)
        )

    def merge(self, peer: int, load: LoadReport, now: float) -> None:
        """Take over what a peer has put there."""
        known = self.peers.get(peer)
        self.peers[peer] = (load, known[1] if known else load.written)
        self.since = max(self.since, now - load.age)
        self._add_up_peers()

    def drop_peer(self, peer: int) -> None:
        """The peer is gone, and its requests with it."""
        gone = self.peers.pop(peer, None)
        if gone is not None:
            self.written += gone[0].written - gone[1]
            self._add_up_peers()

    def _add_up_peers(self) -> None:
        self.peer_in_flight = self.peer_context = 0
        self.peer_pending = self.peer_written = 0.0
        for load, first in self.peers.values():
            self.peer_in_flight += load.in_flight
            self.peer_context += load.context
            self.peer_pending += load.pending
            self.peer_written += load.written - first
        self._add_up()

    def _add_up(self) -> None:
        costs = self.costs
        self.pending = self.queued - self.done + self.peer_pending
        self.step = (
            costs.overhead
            + costs.sequence * (self.in_flight + self.peer_in_flight)
            + costs.context * (self.context + self.peer_context)
        )
