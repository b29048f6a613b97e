"""Decides what a client gets beside an engine's answer: header fields, and what is rewritten on its way.

Does no I/O and reads no clock.
"""

from dataclasses import dataclass
from typing import Protocol

from promptgroup_router.callers.reported_usage import ReportedUsage
from promptgroup_router.callers.unasked_usage import UsageEvents
from promptgroup_router.contract.caller_rules import CachedTokens
from promptgroup_router.decision.cache_diagnosis import CACHE_MISS, Diagnosed, diagnose
from promptgroup_router.policy.balancer import Pick
from promptgroup_router.routing.route import Route
from promptgroup_router.routing.state import RouterState

OK = 200


class BodyRewriter(Protocol):
    """Rewrites the body of an answer on its way."""

    def feed(self, content: bytes, /) -> bytes:
        """Return what of a part of the body can go to the client; raises NotToldError."""

    def finish(self) -> bytes:
        """Return what is left at the end of the body; raises NotToldError."""


class InTurn:
    """One rewriter after the other."""

    def __init__(self, first: BodyRewriter, second: BodyRewriter) -> None:
        self._first = first
        self._second = second

    def feed(self, content: bytes) -> bytes:
        """Return what of a part of the body can go to the client."""
        return self._second.feed(self._first.feed(content))

    def finish(self) -> bytes:
        """Return what is left at the end of the body."""
        return self._second.feed(self._first.finish()) + self._second.finish()


@dataclass(slots=True)
class Additions:
    """The things that are added to an answer."""

    limits: bytes
    """Lines of header fields: limits of the caller and what is left of them; empty without limits."""
    fields: list[tuple[bytes, bytes]]
    """Header fields: why the prompt was not found."""
    rewriter: BodyRewriter | None
    """Rewrites the body: in groups that do not tell what was cached, for clients that ask why something was not, and
    for those who did not ask for the usage that the engine was asked for."""


def additions(
    state: RouterState, found: Route, pick: Pick | None, status: int, *, streamed: bool, compressed: bool, now: float
) -> Additions:
    """Return what is added to an answer.

    Args:
        state: the state of the router or picker.
        found: the route of the request.
        pick: the replica that answers.
        status: of the answer.
        streamed: whether its body is a stream of events.
        compressed: whether its body is coded, so that nobody can read it on its way.
        now: monotonic seconds.
    """
    rewriter: BodyRewriter | None = None
    how = found.candidates.rules.cached_tokens
    if how is not CachedTokens.EXACT and status == OK:
        rewriter = ReportedUsage(how, streamed=streamed, compressed=compressed)
    diagnosis = diagnose(state.prompt_digests, found, pick)
    if diagnosis is not None and status == OK and not compressed:
        rewriter = Diagnosed(state.prompt_digests, found, diagnosis, streamed=streamed)
    if found.rewrite.metered and streamed and status == OK and not compressed:
        rewriter = UsageEvents() if rewriter is None else InTurn(UsageEvents(), rewriter)
    limits = state.limiter.lines(found.charge, now) if found.charge is not None else b""
    fields = [(CACHE_MISS, diagnosis.header())] if diagnosis is not None else []
    return Additions(limits, fields, rewriter)
