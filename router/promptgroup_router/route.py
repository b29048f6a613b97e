"""From a request to where it may go: match, session, revision, keys and the body that the engine gets. Pure."""

from collections.abc import Iterator, Mapping
from dataclasses import dataclass

import xxhash

from promptgroup_router import payload
from promptgroup_router.balance import Keys
from promptgroup_router.contract.names import HEADER_GROUP, HEADER_SESSION
from promptgroup_router.errors import ApiError, shown
from promptgroup_router.match import ByContent, ByName, How, NoMatch, match
from promptgroup_router.payload import Ask, Kind, Preamble
from promptgroup_router.sessions import Sessions
from promptgroup_router.view import GroupView, Pool, RevisionView, View

UNMATCHED = "-"
"""Stands for the group of requests that match none."""

OPENING_BYTES = 1024
"""Of a text prompt: what follows the declared prefix names the session."""
LEADING_BYTES = 2048
"""Of a system text without a group: what its requests are placed by, and listed by."""

_ARM_SEED = 1
"""Keeps a session's arm and its place on the ring independent."""


@dataclass(frozen=True, slots=True)
class Leading:
    """The start of a prompt that no group declares."""

    hash: int
    length: int
    """Bytes of the whole system text."""


@dataclass(frozen=True, slots=True)
class Route:
    """Where a request may go, and what is sent there."""

    how: How
    group: str
    """`namespace/group`, or UNMATCHED."""
    model: str
    pool: Pool
    keys: Keys
    body: bytes
    leading: Leading | None = None
    """Of a request without a group."""


def route(view: View, sessions: Sessions, ask: Ask, headers: Mapping[bytes, bytes], now: float) -> Route:
    """Decide where a request may go.

    Raises:
        ApiError: the model or group is unknown, the request cannot be combined with the group's prompt, or none of the
            group's replicas can take it (503).
    """
    found = match(view, ask, headers.get(HEADER_GROUP.encode(), b"").decode("latin-1"))
    match found:
        case ByContent(claim):
            keys = Keys(_session(ask, headers, claim.group.session_header, claim.revision.system_bytes), claim.prefix)
            return _to(How.CONTENT, claim, keys, payload.with_ordered_tools(ask))
        case ByName(group):
            return _by_name(group, sessions, ask, headers, now)
        case NoMatch(model):
            _refuse_empty(model.pool, f"model {shown(ask.model)}")
            leading = _leading(ask)
            # by its prefix, not by its session: the prefix is all that such requests are known to share
            keys = Keys(leading.hash, leading.hash)
            return Route(How.NONE, UNMATCHED, ask.model, model.pool, keys, ask.raw, leading)


def _by_name(group: GroupView, sessions: Sessions, ask: Ask, headers: Mapping[bytes, bytes], now: float) -> Route:
    session = _session(ask, headers, group.group.session_header, 0)
    revision, prompt = _arm(group, sessions, session, now)
    return _to(
        How.NAME, revision, Keys(session, revision.prefix), payload.with_preamble(ask, prompt, group.group.model)
    )


def _to(how: How, revision: RevisionView, keys: Keys, body: bytes) -> Route:
    _refuse_empty(revision.pool, f"group {revision.label!r}")
    return Route(how, revision.label, revision.group.model, revision.pool, keys, body)


def _refuse_empty(pool: Pool, what: str) -> None:
    if not pool.ready:
        raise _no_replica(what)


def _no_replica(what: str) -> ApiError:
    return ApiError(503, f"{what} has no replica that is ready: retry", param="model", code="no_replica")


def _arm(group: GroupView, sessions: Sessions, session: int, now: float) -> tuple[RevisionView, Preamble]:
    """The revision of a session, and its prompt: the one that it began with, or its arm by weight."""
    ready = [each for each in group.revisions if each.pool.ready]
    serving = [(each, each.preamble) for each in ready if each.preamble is not None]
    seat = sessions.recall(group.label, session, now)
    if seat is not None:
        for each, prompt in serving:
            if each.revision.fingerprint == seat.fingerprint:
                return each, prompt
    arms = sorted(
        ((each, prompt) for each, prompt in serving if each.revision.weight),
        key=lambda arm: arm[0].revision.fingerprint,
    )
    if not arms and any(each.revision.weight for each in ready):
        raise ApiError(
            503,
            f"the prompt of group {group.label!r} has not been read yet: retry, or send the prompt with the request",
            param="model",
            code="prompt_not_available",
        )
    if not arms:
        raise _no_replica(f"group {group.label!r}")
    at = xxhash.xxh3_64_intdigest(session.to_bytes(8, "little"), seed=_ARM_SEED)
    at %= sum(each.revision.weight for each, _ in arms)
    for each, prompt in arms:
        at -= each.revision.weight
        if at < 0:
            return each, prompt
    raise AssertionError("the remainder is less than the sum of the weights")


def _session(ask: Ask, headers: Mapping[bytes, bytes], header: str, prefix_bytes: int) -> int:
    """Hash of what names the session, by precedence."""
    return xxhash.xxh3_64_intdigest(next(_session_names(ask, headers, header, prefix_bytes)))


def _session_names(ask: Ask, headers: Mapping[bytes, bytes], header: str, prefix_bytes: int) -> Iterator[bytes]:
    if value := headers.get((header or HEADER_SESSION).encode()):
        yield value
    if ask.conversation:
        yield ask.conversation
    if ask.kind is Kind.TEXT and not ask.opening:
        yield ask.system.encode()[prefix_bytes : prefix_bytes + OPENING_BYTES]
    yield ask.opening


def _leading(ask: Ask) -> Leading:
    text = ask.system.encode()
    return Leading(xxhash.xxh3_64_intdigest(text[:LEADING_BYTES] or ask.opening[:LEADING_BYTES]), len(text))
