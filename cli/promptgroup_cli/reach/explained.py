"""Builds a query to a router for the route of a request, and describes the answer in words. Does no I/O."""

import json
from collections.abc import Iterator, Mapping, Sequence
from typing import Any

from promptgroup_cli.base import bounded_json
from promptgroup_cli.base.bounded_json import JsonError
from promptgroup_cli.base.errors import InputError
from promptgroup_cli.reach.each_router import no_router
from promptgroup_cli.reach.inputs import path_of
from promptgroup_contract.fingerprint import short
from promptgroup_router.apis.endpoints import ENDPOINTS
from promptgroup_router.apis.request import CHAT_PATH

Document = Mapping[str, Any]
"""The answer to `POST /explain`; `promptgroup_router.explain` lists its fields."""

_HEADS = ("REPLICA", "RING", "STATE", "REQUESTS", "CACHED", "WAIT", "PREFILL", "STEP", "MARGIN", "COST")
_WEIGHED = 4
"""Number of the columns that every policy fills; ExpectedTTFT fills the others too."""
_HOW = {"content": "by its system prompt", "name": "by its name"}
_WHY = {"content": "its prompt is the one in the request", "session": "the session began with it"}
_UNKNOWN = (
    "not known here, so that the session has another key than that of a request to a router, and often another home"
)
_UNGROUPED = "no group declares the beginning of the prompt"


def explain_question(body: str, headers: Mapping[str, str]) -> bytes:
    """Return the query; the API is detected by the body.

    Raises:
        InputError: requests of that API are routed by their model alone, which is nothing to explain.
    """
    try:
        parsed = bounded_json.parse(body.encode())
    except JsonError:
        parsed = None  # the router reports the fault
    path = path_of(parsed) if isinstance(parsed, dict) else CHAT_PATH
    if not ENDPOINTS[path].cached:
        raise InputError(
            f"the body is one for {path.decode()}, which any replica of its model serves as well as another: "
            "give one with a prompt"
        )
    return json.dumps({"path": path.decode(), "headers": dict(headers), "body": body}).encode()


def parse_explanation(by: str, answer: bytes) -> dict[str, Any]:
    """Return the answer, with who gave it as `by`.

    Raises:
        ReachError: it is none of a router.
    """
    try:
        return {"by": by, **bounded_json.parse(answer)}
    except (JsonError, TypeError):
        raise no_router(by) from None


def facts(result: Document) -> Iterator[tuple[str, str]]:
    """Yield the named texts: the request, and its destination or the reason why it is refused."""
    if "match" in result:
        yield from _request(result)
    refusal = result["refusal"]
    if refusal is not None:
        yield "Refused", f"{refusal['status']} {refusal['code'] or ''}".rstrip() + f": {refusal['message']}"
        return
    if result["ring"]:  # a group that sleeps has none
        home = result["ring"][0]
        yield "Home", home["replica"] + (f" ({home['state']})" if home["state"] != "Ready" else "")
    yield "Goes to", f"{result['choice'] or 'no replica yet'}: {result['why']} ({result['policy']})"


def candidates(result: Document) -> list[Sequence[str]]:
    """Return the table of the replicas, its heads first; empty for a request that is refused."""
    if result["refusal"] is not None:
        return []
    weighed = any(candidate["cost"] is not None for candidate in result["candidates"])
    return [row if weighed else row[:_WEIGHED] for row in (_HEADS, *_rows(result))]


def _request(result: Document) -> Iterator[tuple[str, str]]:
    yield "Group", _group(result["match"])
    if (caller := result.get("caller")) is not None:  # earlier routers do not report it
        yield "Caller", caller["name"] or _UNKNOWN
    yield "Session", _session(result["session"])
    if result["revision"] is not None:
        yield "Revision", _revision(result["revision"])
    tokens = result["tokens"]
    parts = f"{tokens['prefix']:,} of the prefix and {tokens['history']:,} of the history up to the last answer"
    yield "Tokens", f"about {tokens['prompt']:,}, with {parts}"


def _group(match: Document) -> str:
    if match["group"] is not None:
        return f"{match['group']} ({_model(match)}), matched {_HOW[match['how']]}"
    missed = match["nearMiss"]
    near = (
        f"; it departs from the prompt of {missed['group']} at byte {missed['atByte']:,}" if missed is not None else ""
    )
    return f"none ({_model(match)}): {_UNGROUPED}{near}"


def _model(match: Document) -> str:
    alias = match.get("alias")  # earlier routers do not report it
    return f"model {match['model']}" + (f" by its alias {alias}" if alias else "")


def _session(session: Document) -> str:
    source = session["source"]
    if session["named"]:
        key = f"named by {source}"
    else:
        start = "recognised by the start of the conversation"
        key = f"{start}, within {source}" if source else start
    last = session["last"]
    where = "not seen before"
    if last:
        where = f"served {last['secondsAgo']:g} s ago by {last['replica']}, with {last['tokens']:,} tokens"
    return f"{session['key']}, {key}; {where}"


def _revision(revision: Document) -> str:
    share = f"weight {revision['weight']} of {revision['weights']}"
    reason = _WHY.get(revision["why"], "drawn by weight for a new session")
    return f"{short(revision['fingerprint'])} ({share}): {reason}"


def _rows(result: Document) -> Iterator[Sequence[str]]:
    """Yield the candidates in the order of the router, then the slots that get no requests."""
    ring = {item["replica"]: (str(place), item["state"]) for place, item in enumerate(result["ring"])}
    for candidate in result["candidates"]:
        place, state = ring.pop(candidate["replica"])
        yield (
            candidate["replica"],
            place,
            _state(candidate, state),
            str(candidate["requests"]),
            *_cost(candidate["cost"]),
        )
    for replica, (place, state) in ring.items():
        yield replica, place, state


def _state(candidate: Document, state: str) -> str:
    if candidate["ejected"]:
        return "Ejected"
    if candidate["room"] is False:
        return "Full"
    return "Lent" if candidate["lent"] else state


def _cost(cost: Document | None) -> Iterator[str]:
    if cost is None:
        return
    yield f"{cost['cachedTokens']:,}"
    for name in ("wait", "prefill", "step", "margin", "total"):
        yield f"{cost[name] * 1000:,.1f} ms"
