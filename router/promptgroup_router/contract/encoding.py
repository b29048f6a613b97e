"""Encodes the routing table as JSON: PromptRoutes, table files and the copy that a router keeps on disk.

Decoding ignores unknown fields and has a default for every field that was added later, so that routers and operators of
different versions read each other. It refuses an unknown `format`; the caller then keeps the last good table. Unknown
values (a zero, an empty text) are not written.
"""

import enum
from collections.abc import Iterable, Mapping
from typing import Any, TypeVar

from promptgroup_router.contract.fingerprint import Fingerprint
from promptgroup_router.contract.messages import read_messages
from promptgroup_router.contract.names import HEADER_SESSION
from promptgroup_router.contract.table import (
    LOAD_FACTOR_PERCENT,
    MESSAGES_KEY,
    SYSTEM_KEY,
    TOOLS_KEY,
    Engine,
    Group,
    OwnInstructions,
    Policy,
    Prompt,
    PromptRef,
    Revision,
    RoutingTable,
    Sharing,
    Slot,
    SlotState,
    TableError,
    TimeLimits,
)

FORMAT = 1
"""Version of the encoding. Additions keep it; a change of meaning raises it."""

_E = TypeVar("_E", bound=enum.StrEnum)


# --- Encoding ----------------------------------------------------------------------------------------------


def encode_group(group: Group) -> dict[str, Any]:
    """Return the `spec` of the group's PromptRoute, without prompt text."""
    limits = {"firstTokenSeconds": group.time_limits.first_token, "idleSeconds": group.time_limits.idle}
    encoded: dict[str, Any] = {
        "format": FORMAT,
        "model": group.model,
        "created": group.created,
        "policy": group.policy.value,
        "sharing": group.sharing.value,
        "loadFactorPercent": group.load_factor_percent,
        "sessionHeader": group.session_header,
        **{key: value for key, value in limits.items() if value},
        "revisions": [_encode_revision(revision) for revision in group.revisions],
    }
    if group.own_instructions is not OwnInstructions.REFUSE:
        encoded["ownInstructions"] = group.own_instructions.value
    return encoded


def encode_table(table: RoutingTable) -> dict[str, Any]:
    """Return a table file with the prompt text inline. Guard it as you would guard the prompts."""
    groups = []
    for group in table.groups:
        spec = encode_group(group)
        for encoded, revision in zip(spec["revisions"], group.revisions, strict=True):
            if revision.prompt is not None:
                prompt = revision.prompt
                encoded["prompt"] = {SYSTEM_KEY: prompt.system, TOOLS_KEY: prompt.tools}
                if prompt.messages:
                    encoded["prompt"][MESSAGES_KEY] = prompt.messages
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
    if revision.messages:
        encoded["messages"] = revision.messages
    if revision.tokens:
        encoded["tokens"] = revision.tokens
    if engine := _encode_engine(revision.engine):
        encoded["engine"] = engine
    if not revision.lends:
        encoded["lends"] = False
    if revision.prompt_from is not None:
        encoded["promptFrom"] = {"kind": revision.prompt_from.kind, "name": revision.prompt_from.name}
    return encoded


def _encode_engine(engine: Engine) -> dict[str, Any]:
    optional = {
        "settings": engine.settings,
        "kvTokens": engine.kv_tokens,
        "prefillTokensPerSecond": engine.prefill_rate,
        "stepTokens": engine.step_tokens,
    }
    return {key: value for key, value in optional.items() if value}


def _encode_slot(slot: Slot) -> dict[str, Any]:
    optional = {"address": slot.address, "pod": slot.pod, "incarnation": slot.incarnation}
    return {"slot": slot.index, "state": slot.state.value} | {key: value for key, value in optional.items() if value}


# --- Decoding ----------------------------------------------------------------------------------------------


def decode_table(data: object) -> RoutingTable:
    """Return the table of a parsed table file.

    Raises:
        TableError: the value is no table, has an unknown format, or has a field that cannot be used.
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
    """Return the group of a PromptRoute's `spec`, or of an entry of a table file.

    Raises:
        TableError: the format is unknown, or a field cannot be used.
    """
    at = f"{namespace}/{name}"
    data = _mapping(spec, at)
    _check_format(data, at)
    factor = _count(data, "loadFactorPercent", at, LOAD_FACTOR_PERCENT)
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
        policy=_member(Policy, data, "policy", at, Policy.EXPECTED_TTFT),
        sharing=_member(Sharing, data, "sharing", at, Sharing.POOL),
        load_factor_percent=factor,
        session_header=_text(data, "sessionHeader", at, HEADER_SESSION).lower(),
        own_instructions=_member(OwnInstructions, data, "ownInstructions", at, OwnInstructions.REFUSE),
        time_limits=TimeLimits(_count(data, "firstTokenSeconds", at, 0), _count(data, "idleSeconds", at, 0)),
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
        fingerprint=Fingerprint(_text(data, "fingerprint", at)),
        system_bytes=_count(data, "systemBytes", at),
        tools=data.get("tools", False) is True,
        weight=_count(data, "weight", at),
        slots=tuple(sorted(slots, key=lambda slot: slot.index)),
        messages=_count(data, "messages", at, 0),
        tokens=_count(data, "tokens", at, 0),
        engine=_decode_engine(data.get("engine"), f"{at}.engine"),
        prompt_from=ref,
        lends=data.get("lends", True) is not False,
        prompt=prompt,
    )


def _decode_engine(item: object, at: str) -> Engine:
    if item is None:
        return Engine()
    data = _mapping(item, at)
    return Engine(
        settings=_text(data, "settings", at, ""),
        kv_tokens=_count(data, "kvTokens", at, 0),
        prefill_rate=_count(data, "prefillTokensPerSecond", at, 0),
        step_tokens=_count(data, "stepTokens", at, 0),
    )


def _decode_prompt(item: object, at: str) -> Prompt:
    data = _mapping(item, at)
    parts = [data.get(key, "") for key in (SYSTEM_KEY, TOOLS_KEY, MESSAGES_KEY)]
    if not all(isinstance(part, str) for part in parts):
        raise TableError(
            f"{at}: system, tools and messages must be strings"
        )  # without the value, because errors are logged
    try:
        read_messages(parts[2])
    except ValueError as error:
        raise TableError(f"{at}: {error}") from None
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
        raise TableError(
            f"{at}: format is {data.get('format')!r}, this router reads format {FORMAT}: upgrade the router"
        )


def _check_unique(values: Iterable[object], at: str) -> None:
    seen = set()
    for value in values:
        if value in seen:
            raise TableError(f"{at}: {value} is listed twice")
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


def _count(data: Mapping[str, Any], key: str, at: str, default: int | None = None) -> int:
    value = data.get(key, default)
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
