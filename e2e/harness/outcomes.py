"""What became of requests. Pure."""

import json
from collections import Counter
from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass, field


@dataclass(frozen=True, slots=True)
class Outcome:
    """What became of one request."""

    session: int
    turn: int
    streamed: bool
    status: int
    """HTTP status; 0 when no answer came."""
    served: str
    """`namespace/group/revision/slot`, by the router's word."""
    error: str
    """Why it failed, empty when it did not."""
    seconds: float
    prompt: int = 0
    """Tokens of its prompt, by the engine's word."""
    cached: int = 0
    """Those of them that the engine found in its cache."""

    @property
    def revision(self) -> str:
        """The revision that served it; empty when none did."""
        parts = self.served.split("/")
        return parts[2] if len(parts) == 4 else ""


@dataclass(slots=True)
class Seen:
    """What became of the requests that ended while something was done; filled in at its end."""

    requests: int = 0
    failed: list[str] = field(default_factory=list)
    """Errors of requests for a whole answer."""
    cut: list[str] = field(default_factory=list)
    """Errors of requests for a stream."""
    cold: list[str] = field(default_factory=list)
    """Requests whose declared prefix was not in the cache of the engine that served them."""
    moves: Counter[tuple[str, str]] = field(default_factory=Counter)
    """(slot before, slot after) → turns that another slot served than the session's turn before."""
    served: Counter[str] = field(default_factory=Counter)
    """Slot → answers."""

    def moved(self, besides: Collection[str] = ()) -> int:
        """Moves between slots, without those from or to some."""
        return sum(count for ends, count in self.moves.items() if not set(ends) & set(besides))

    def changed_revision(self) -> int:
        """Moves to a slot of another revision."""
        return sum(count for (one, other), count in self.moves.items() if _revision(one) != _revision(other))


def _revision(slot: str) -> str:
    return slot.rpartition("/")[0]


def parse(log: str) -> list[Outcome]:
    """Outcomes from a log of container lines: those that are JSON; what stands before it is the runtime's."""
    result = []
    for line in log.splitlines():
        _, brace, rest = line.partition("{")
        if brace:
            result.append(Outcome(**json.loads(brace + rest)))
    return result


def seen(into: Seen, outcomes: Sequence[Outcome], since: int, needed: Mapping[str, int]) -> None:
    """Fill in what became of `outcomes[since:]`; earlier ones say where their sessions were.

    Args:
        into: what is filled in.
        outcomes: all of them, in the order of their ends.
        since: the first that counts.
        needed: revision → cached tokens of a request that met the declared prefix in cache.
    """
    last: dict[int, str] = {}
    for number, outcome in enumerate(outcomes):
        if number >= since:
            into.requests += 1
            if outcome.error:
                (into.cut if outcome.streamed else into.failed).append(f"{outcome.served} {outcome.error}")
        if outcome.error:
            continue
        before = last.get(outcome.session, outcome.served)
        last[outcome.session] = outcome.served
        if number >= since:
            into.served[outcome.served] += 1
            into.moves.update([(before, outcome.served)] if before != outcome.served else [])
            if outcome.cached < needed.get(outcome.revision, 1):
                into.cold.append(f"{outcome.served} {outcome.cached} of {outcome.prompt}")


def p99(outcomes: Sequence[Outcome]) -> float:
    """Seconds within which 99 of 100 requests ended that were answered in full."""
    ordered = sorted(outcome.seconds for outcome in outcomes if not outcome.error)
    return ordered[len(ordered) * 99 // 100]


def unharmed(result: Seen) -> bool:
    """Every request was answered in full by a replica that was warm for the prompt."""
    assert result.requests > 0
    assert (result.failed, result.cut, result.cold) == ([], [], [])
    return True
