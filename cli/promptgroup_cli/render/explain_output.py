"""A router's explanation of a request as text. Pure."""

from collections.abc import Iterator, Mapping, Sequence
from typing import Any

from promptgroup_cli.render.columns import columns, fact
from promptgroup_router.contract.fingerprint import short

Told = Mapping[str, Any]
"""What `POST /explain` answers: `promptgroup_router.explain` has its fields."""

_HEADS = ("REPLICA", "RING", "STATE", "REQUESTS", "CACHED", "WAIT", "PREFILL", "STEP", "MARGIN", "COST")
_WEIGHED = 4
"""Columns before those that only ExpectedTTFT fills."""
_HOW = {"content": "by its system prompt", "name": "by its name"}
_WHY = {"content": "the one whose prompt it brings", "session": "the one that its session began with"}
_UNGROUPED = "no group declares the beginning of its prompt"


def table(told: Told) -> str:
    """For people."""
    return "\n".join(_lines(told))


def _lines(told: Told) -> Iterator[str]:
    if "match" in told:
        yield from _request(told)
    refusal = told["refusal"]
    if refusal is not None:
        yield from fact("refused", f"{refusal['status']} {refusal['code'] or ''}".rstrip() + f": {refusal['message']}")
    else:
        yield from _placement(told)


def _request(told: Told) -> Iterator[str]:
    yield from fact("group", _group(told["match"]))
    yield from fact("session", _session(told["session"]))
    if told["revision"] is not None:
        yield from fact("revision", _revision(told["revision"]))
    tokens = told["tokens"]
    parts = f"{tokens['prefix']:,} of them the prefix, {tokens['history']:,} up to the last answer"
    yield from fact("tokens", f"about {tokens['prompt']:,}, {parts}")


def _placement(told: Told) -> Iterator[str]:
    home = told["ring"][0]
    yield from fact("home", home["replica"] + (f" ({home['state']})" if home["state"] != "Ready" else ""))
    yield from fact("goes to", f"{told['choice'] or 'nowhere yet'}: {told['why']} ({told['policy']})")
    yield ""
    weighed = any(each["cost"] is not None for each in told["candidates"])
    rows = [_HEADS, *_rows(told)]
    yield from columns([row if weighed else row[:_WEIGHED] for row in rows])


def _group(match: Told) -> str:
    if match["group"] is not None:
        return f"{match['group']}, {_HOW[match['how']]}, model {match['model']}"
    missed = match["departed"]
    near = f"; it leaves that of {missed['group']} at byte {missed['atByte']:,}" if missed is not None else ""
    return f"none, model {match['model']}: {_UNGROUPED}{near}"


def _session(session: Told) -> str:
    source = session["source"]
    if session["named"]:
        key = f"by {source}"
    else:
        key = f"by the start of the conversation, within {source}" if source else "by the start of the conversation"
    last = session["last"]
    where = f"{last['secondsAgo']:g} s ago on {last['replica']}, {last['tokens']:,} tokens" if last else "not known yet"
    return f"{session['key']}, {key}; {where}"


def _revision(revision: Told) -> str:
    share = f"its weight is {revision['weight']} of {revision['weights']}"
    return f"{short(revision['fingerprint'])}, {_WHY.get(revision['why'], 'of a new session by its key')}; {share}"


def _rows(told: Told) -> Iterator[Sequence[str]]:
    """Candidates as the router has them, then the slots that nothing may be sent to."""
    ring = {each["replica"]: (str(place), each["state"]) for place, each in enumerate(told["ring"])}
    for each in told["candidates"]:
        place, state = ring.pop(each["replica"])
        yield each["replica"], place, _state(each, state), str(each["requests"]), *_cost(each["cost"])
    for replica, (place, state) in ring.items():
        yield replica, place, state


def _state(candidate: Told, state: str) -> str:
    if candidate["ejected"]:
        return "Ejected"
    if candidate["room"] is False:
        return "Full"
    return "Lent" if candidate["lent"] else state


def _cost(cost: Told | None) -> Iterator[str]:
    if cost is None:
        return
    yield f"{cost['cachedTokens']:,}"
    for name in ("wait", "prefill", "step", "margin", "total"):
        yield f"{cost[name] * 1000:,.1f} ms"
