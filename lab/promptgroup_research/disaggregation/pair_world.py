"""Engines that compute prompts, and others that generate the answers, with a link between them.

It is what vLLM's NixlConnector does: the router sends a request for one token to a prefill engine, then the request
itself to a decode engine, which first copies what its own cache lacks of the prompt.
"""

from collections import Counter
from collections.abc import Iterable
from dataclasses import dataclass
from typing import Protocol

from promptgroup_research.disaggregation.token_gaps import WatchedEngine
from promptgroup_research.simulator.engine import Engine, Model
from promptgroup_research.simulator.turns import Session, Turn
from promptgroup_research.simulator.world import Router, World


@dataclass(frozen=True, slots=True)
class Link:
    """The way of KV blocks into a decode engine."""

    name: str
    latency: float
    """Seconds of a transfer of nothing: the second request, the handshake, the look-up."""
    token: float
    """Seconds that each token takes; transfers to one engine come one after the other."""


class PairRouter(Router, Protocol):
    """A router that may have a prompt computed elsewhere first."""

    def prefiller(self, turn: Turn) -> int | None:
        """Return the engine that computes the prompt of a request that was placed; None where its own does."""


class PairWorld(World):
    """The first `prefillers` of the engines compute prompts alone, and requests are placed on the others."""

    def __init__(
        self,
        router: PairRouter,
        sessions: Iterable[Session],
        replicas: int,
        prefillers: int,
        *,
        model: Model,
        link: Link,
    ) -> None:
        self.prefillers = range(prefillers)
        self.link = link
        self.coming: Counter[int] = Counter()
        """Decode engine → requests whose prompts are computed or copied for it."""
        self.computed: dict[Turn, int] = {}
        """Request → tokens that a prefill engine computed for it."""
        self.copied: dict[Turn, int] = {}
        """Request → tokens that its decode engine copied."""
        self.link_free: dict[int, float] = {}
        """Decode engine → the time at which its link has nothing to copy."""
        self._pairs = router
        self._halves: dict[Turn, Turn] = {}
        """The request for one token → the request."""
        super().__init__(router, sessions, replicas, model, engine=WatchedEngine)
        self.set_up(range(prefillers, replicas))

    def send(self, turn: Turn, replica: int) -> None:
        """Hand a request to its decode engine, or at first to a prefill engine."""
        chosen = self._pairs.prefiller(turn)
        if chosen is None:
            super().send(turn, replica)
            return
        turn.replica, turn.sent = replica, self.now
        self.coming[replica] += 1
        half = Turn(turn.session, turn.nodes, turn.sizes, 1, turn.number)
        half.pick = turn.pick
        self._halves[half] = turn
        engine = self.engines[chosen]
        self._await(engine, engine.arrive(half, self.now))

    def _first_token(self, turn: Turn, now: float) -> None:
        if turn not in self._halves:
            super()._first_token(turn, now)

    def _ended(self, turn: Turn, now: float) -> None:
        request = self._halves.pop(turn, None)
        if request is None:
            super()._ended(turn, now)
            return
        decoder = self.engines[request.replica]
        missing = request.prompt - decoder.cache.find(request.nodes, request.sizes)
        self.computed[request] = turn.prompt - turn.cached
        self.copied[request] = missing
        begun = max(now, self.link_free.get(request.replica, 0.0))
        self.link_free[request.replica] = begun + missing * self.link.token
        self.at(self.link_free[request.replica] + self.link.latency, lambda: self._deliver(request, decoder))

    def _deliver(self, request: Turn, decoder: Engine) -> None:
        self.coming[request.replica] -= 1
        # the engine computes the last token of the prompt, which makes the first one of the answer
        request.copied = request.prompt - 1
        request.pick = 0.0
        self._await(decoder, decoder.arrive(request, self.now))
