"""The routing table: an immutable value, written by the operator, read by routers.

A `Group` is the `spec` of one PromptRoute together with its namespace and name; a table file (`--table`, and the
copy that a router keeps on disk) is a list of them. Decoding accepts unknown fields, so that an older router reads a
newer operator's additions, and refuses an unknown `format`: its caller then keeps the last good table.

Prompt text is not part of a PromptRoute. A revision names the immutable ConfigMap or Secret that holds it
(`promptFrom`), and the router fetches it once; in a table file the text stands inline (`prompt`).
"""

import enum
from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from typing import Any, TypeVar

from promptgroup_router.contract.names import HEADER_SESSION

FORMAT = 1
"""Version of the encoding. Additions keep it; a change of meaning raises it."""

SYSTEM_KEY = "system"
"""Key of the system text in a prompt ConfigMap or Secret."""
TOOLS_KEY = "tools"
"""Key of the tools, canonical JSON, in a prompt ConfigMap or Secret; absent without tools."""


_E = TypeVar("_E", bound=enum.StrEnum)


class TableError(ValueError):
    """A table that cannot be used: the message names the field, the value and what is expected."""


class Policy(enum.StrEnum):
    """How a request's replica is chosen."""

    EXPECTED_TTFT = "ExpectedTTFT"
    BOUNDED_LOAD = "BoundedLoad"
    LEAST_REQUEST = "LeastRequest"
    ROUND_ROBIN = "RoundRobin"
    PREFIX_HASH = "PrefixHash"


class Sharing(enum.StrEnum):
    """Whether a group's replicas take the overflow of others, and its own overflow may go to theirs."""

    POOL = "Pool"
    """Among groups of one namespace, model and engine settings that all say so."""
    DEDICATED = "Dedicated"
    """Its replicas serve this group alone."""


class SlotState(enum.StrEnum):
    """What a router may send to a slot."""

    READY = "Ready"
    """Warm: anything."""
    DRAINING = "Draining"
    """Leaving: nothing new; what runs ends."""
    ABSENT = "Absent"
    """No warm pod holds the slot now. It keeps its place on the ring, its keys walk on and come back."""


@dataclass(frozen=True, slots=True)
class Prompt:
    """A Tier-1 prefix: system text, and tools in canonical form (`""` for none)."""

    system: str
    tools: str = ""


@dataclass(frozen=True, slots=True)
class PromptRef:
    """Where the text of a revision lies: an immutable object in the group's namespace."""

    kind: str
    """`ConfigMap` or `Secret`."""
    name: str


@dataclass(frozen=True, slots=True)
class Slot:
    """A place on a revision's ring and the pod that holds it."""

    index: int
    state: SlotState
    address: str = ""
    """`host:port`, empty when Absent."""
    pod: str = ""
    incarnation: str = ""
    """Changes when the engine behind the slot is another process: health learned about the old one is void."""


@dataclass(frozen=True, slots=True)
class Engine:
    """What is known of the engines of a revision. A number is 0 where nobody knows it: routers then assume little."""

    settings: str = ""
    """Digest of all that makes two engines interchangeable but their prompt; empty: alike to no other."""
    kv_tokens: int = 0
    """Tokens of KV cache that one replica has."""
    prefill_rate: int = 0
    """Prompt tokens a second at the start of a context, as measured; a lower bound."""
    step_tokens: int = 0
    """Most tokens that one step computes (`max_num_batched_tokens`)."""


@dataclass(frozen=True, slots=True)
class Revision:
    """One fingerprint of a group and the replicas that are warm for it."""

    fingerprint: str
    system_bytes: int
    """Length of the system text in UTF-8."""
    tools: bool
    """Whether the prefix has tools: their canonical form stands in the prompt."""
    weight: int
    """Share of new sessions that name the group, relative to the other revisions' weights."""
    slots: tuple[Slot, ...]
    tokens: int = 0
    """Length of the prefix in tokens, as an engine counted it; 0 while none has."""
    engine: Engine = Engine()
    prompt_from: PromptRef | None = None
    prompt: Prompt | None = None
    """The text, once it is known: needed to serve requests by name, not to match by content."""


@dataclass(frozen=True, slots=True)
class Group:
    """One PromptGroup as a router sees it."""

    namespace: str
    name: str
    model: str
    created: str
    """RFC 3339 time in UTC: of two groups that claim one prefix, the older keeps it."""
    revisions: tuple[Revision, ...]
    policy: Policy = Policy.EXPECTED_TTFT
    sharing: Sharing = Sharing.POOL
    load_factor_percent: int = 125
    """Bound of BoundedLoad: a slot takes at most this percentage of the mean load, rounded up."""
    session_header: str = HEADER_SESSION


@dataclass(frozen=True, slots=True)
class RoutingTable:
    """Everything a router serves. `version` tells two tables apart; it orders nothing."""

    groups: tuple[Group, ...] = ()
    version: str = ""


# --- Encoding ----------------------------------------------------------------------------------------------


def encode_group(group: Group) -> dict[str, Any]:
    """The `spec` of the group's PromptRoute, without prompt text."""
    return {
        "format": FORMAT,
        "model": group.model,
        "created": group.created,
        "policy": group.policy.value,
        "loadFactorPercent": group.load_factor_percent,
        "sessionHeader": group.session_header,
        "revisions": [_encode_revision(revision) for revision in group.revisions],
    }


def encode_table(table: RoutingTable) -> dict[str, Any]:
    """A table file: prompt text inline. Whoever writes it guards it as it would guard the prompts."""
    groups = []
    for group in table.groups:
        spec = encode_group(group)
        for encoded, revision in zip(spec["revisions"], group.revisions, strict=True):
            if revision.prompt is not None:
                encoded["prompt"] = {"system": revision.prompt.system, "tools": revision.prompt.tools}
        groups.append({"namespace": group.namespace, "name": group.name, **spec})
    return {"format": FORMAT, "version": table.version, "groups": groups}


def _encode_revision(revision: Revision) -> dict[str, Any]:
    encoded: dict[str, Any] = {
        "fingerprint": revision.fingerprint,
        "systemBytes": revision.system_bytes,
        "tools": revision.tools,
        "weight": revision.weight,
        "slots": [_encode_slot(slot) for slot in revision.slots],
    }
    if revision.prompt_from is not None:
        encoded["promptFrom"] = {"kind": revision.prompt_from.kind, "name": revision.prompt_from.name}
    return encoded


def _encode_slot(slot: Slot) -> dict[str, Any]:
    optional = {"address": slot.address, "pod": slot.pod, "incarnation": slot.incarnation}
    return {"slot": slot.index, "state": slot.state.value} | {key: value for key, value in optional.items() if value}


# --- Decoding ----------------------------------------------------------------------------------------------


def decode_table(data: object) -> RoutingTable:
    """A table from a parsed table file.

    Raises:
        TableError: not a table, an unknown format, or a field that cannot be used.
    """
    table = _mapping(data, "table")
    _check_format(table, "table")
    groups = []
    for i, item in enumerate(_items(table, "groups", "table")):
        entry = _mapping(item, f"groups[{i}]")
        namespace, name = _text(entry, "namespace", f"groups[{i}]"), _text(entry, "name", f"groups[{i}]")
        groups.append(decode_group(namespace, name, entry))
    _check_unique((f"{group.namespace}/{group.name}" for group in groups), "groups")
    return RoutingTable(tuple(groups), _text(table, "version", "table", ""))


def decode_group(namespace: str, name: str, spec: object) -> Group:
    """A group from the `spec` of its PromptRoute, or from an entry of a table file.

    Raises:
        TableError: an unknown format, or a field that cannot be used.
    """
    at = f"{namespace}/{name}"
    data = _mapping(spec, at)
    _check_format(data, at)
    factor = _count(data, "loadFactorPercent", at) if "loadFactorPercent" in data else 125
    if not 100 <= factor <= 10_000:
        raise TableError(f"{at}: loadFactorPercent is {factor}, expected 100 to 10000")
    revisions = tuple(
        _decode_revision(item, f"{at}: revisions[{i}]") for i, item in enumerate(_items(data, "revisions", at))
    )
    _check_unique((revision.fingerprint for revision in revisions), f"{at}: revisions")
    return Group(
        namespace=namespace,
        name=name,
        model=_text(data, "model", at),
        created=_text(data, "created", at, ""),
        revisions=revisions,
        policy=_member(Policy, data, "policy", at, Policy.BOUNDED_LOAD),
        load_factor_percent=factor,
        session_header=_text(data, "sessionHeader", at, HEADER_SESSION).lower(),
    )


def _decode_revision(item: object, at: str) -> Revision:
    data = _mapping(item, at)
    slots = tuple(_decode_slot(slot, f"{at}.slots[{i}]") for i, slot in enumerate(_items(data, "slots", at)))
    _check_unique((slot.index for slot in slots), f"{at}.slots")
    prompt = data.get("prompt")
    if prompt is not None:
        prompt = _decode_prompt(prompt, f"{at}.prompt")
    ref = data.get("promptFrom")
    if ref is not None:
        source = _mapping(ref, f"{at}.promptFrom")
        ref = PromptRef(_text(source, "kind", f"{at}.promptFrom"), _text(source, "name", f"{at}.promptFrom"))
    return Revision(
        fingerprint=_text(data, "fingerprint", at),
        system_bytes=_count(data, "systemBytes", at),
        tools=data.get("tools", False) is True,
        weight=_count(data, "weight", at),
        slots=tuple(sorted(slots, key=lambda slot: slot.index)),
        prompt_from=ref,
        prompt=prompt,
    )


def _decode_prompt(item: object, at: str) -> Prompt:
    data = _mapping(item, at)
    parts = [data.get(key, "") for key in (SYSTEM_KEY, TOOLS_KEY)]
    if not all(isinstance(part, str) for part in parts):
        raise TableError(f"{at}: system and tools must be strings")  # without the value: errors are logged
    return Prompt(*parts)


def _decode_slot(item: object, at: str) -> Slot:
    data = _mapping(item, at)
    state = _member(SlotState, data, "state", at, None)
    address = _text(data, "address", at, "")
    if state is not SlotState.ABSENT:
        host, colon, port = address.rpartition(":")
        if not (host and colon and port.isascii() and port.isdigit() and 0 < int(port) < 65536):
            raise TableError(f"{at}: address is {address!r}, expected host:port for a slot that is {state}")
    return Slot(
        index=_count(data, "slot", at),
        state=state,
        address=address,
        pod=_text(data, "pod", at, ""),
        incarnation=_text(data, "incarnation", at, ""),
    )


def _check_format(data: Mapping[str, Any], at: str) -> None:
    if data.get("format") != FORMAT:
        raise TableError(f"{at}: format is {data.get('format')!r}, this router reads {FORMAT}: upgrade it")


def _check_unique(values: Iterable[object], at: str) -> None:
    seen = set()
    for value in values:
        if value in seen:
            raise TableError(f"{at}: {value} stands twice")
        seen.add(value)


def _mapping(value: object, at: str) -> Mapping[str, Any]:
    if not isinstance(value, Mapping):
        raise TableError(f"{at} is a {type(value).__name__}, expected an object")
    return value


def _items(data: Mapping[str, Any], key: str, at: str) -> list[object]:
    value = data.get(key, [])
    if not isinstance(value, list):
        raise TableError(f"{at}: {key} is a {type(value).__name__}, expected a list")
    return value


def _text(data: Mapping[str, Any], key: str, at: str, default: str | None = None) -> str:
    value = data.get(key, default)
    if not isinstance(value, str):
        raise TableError(f"{at}: {key} is {_shown(value)}, expected a string")
    return value


def _count(data: Mapping[str, Any], key: str, at: str) -> int:
    value = data.get(key)
    if isinstance(value, bool) or not isinstance(value, int) or value < 0:
        raise TableError(f"{at}: {key} is {_shown(value)}, expected a whole number from 0")
    return value


def _member(kind: type[_E], data: Mapping[str, Any], key: str, at: str, default: _E | None) -> _E:
    value = data.get(key, default)
    try:
        return kind(value)
    except ValueError:
        expected = ", ".join(member.value for member in kind)
        raise TableError(f"{at}: {key} is {_shown(value)}, expected one of {expected}") from None


def _shown(value: object) -> str:
    return "missing" if value is None else repr(value)
