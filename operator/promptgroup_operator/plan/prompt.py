"""The group's prompt: the source of its text, and the decision if it may be served.

Messages contain names of objects, keys and hashes, never text.
"""

import json
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from datetime import datetime, timedelta
from typing import Any

from promptgroup_contract import names
from promptgroup_contract.fingerprint import Fingerprint, canonical_tools
from promptgroup_contract.messages import canonical_messages
from promptgroup_contract.table import MAX_MESSAGES, Prompt
from promptgroup_operator.api.model import KeyRef
from promptgroup_operator.api.prompt_group import (
    FREE_LEVELS,
    MAX_PROMPT,
    PromptSpec,
    TextSource,
    take_turns,
)
from promptgroup_operator.base import nesting
from promptgroup_operator.base.timestamps import parse_time
from promptgroup_operator.world.snapshot import GroupObject, Problem, PromptText, Sibling

BINARY = "is in binaryData, where kubectl puts what is not UTF-8 text: write it in UTF-8, under data"
NOT_TEXT = "is not UTF-8 text"


class Texts(dict[str, str]):
    """Data of a ConfigMap or Secret as text, by key; `unreadable` maps keys whose values are no text to the reason."""

    def __init__(self, texts: Mapping[str, str], unreadable: Mapping[str, str]) -> None:
        super().__init__(texts)
        self.unreadable = unreadable


def lacking(data: Mapping[str, str] | None, key: str) -> str:
    """Return the reason why there is no text under a key, as the end of a sentence."""
    return data.unreadable.get(key, "does not exist") if isinstance(data, Texts) else "does not exist"


Values = Mapping[tuple[str, str], Mapping[str, str] | None]
"""(kind, name) → the object's data as text, None when there is no such object."""


@dataclass(frozen=True, slots=True)
class _Ref:
    kind: str
    ref: KeyRef
    field: str


def references(spec: PromptSpec) -> list[tuple[str, str]]:
    """Return (kind, name) of every object that contains a part of the prompt's text."""
    refs = (
        _ref(spec.system_from, "systemFrom"),
        _ref(spec.tools_from, "toolsFrom"),
        _ref(spec.messages_from, "messagesFrom"),
    )
    return sorted({(ref.kind, ref.ref.name) for ref in refs if ref is not None})


def resolve(spec: PromptSpec, values: Values) -> PromptText | Problem:
    """Return the prompt, or the reason why there is none yet.

    Args:
        spec: `spec.prompt`.
        values: the objects that `references(spec)` names.
    """
    written = _system(spec, values)
    if isinstance(written, Problem):
        return written
    system, secret = written
    tools: Sequence[object] = spec.tools or []
    if (ref := _ref(spec.tools_from, "toolsFrom")) is not None:
        text = _lookup(ref, values, "ToolsNotFound")
        listed = text if isinstance(text, Problem) else _tools(ref, text)
        if isinstance(listed, Problem):
            return listed
        tools, secret = listed, secret or ref.kind == "Secret"
    messages: list[tuple[str, str]] = [(message.role, message.content) for message in spec.messages or ()]
    if (ref := _ref(spec.messages_from, "messagesFrom")) is not None:
        text = _lookup(ref, values, "MessagesNotFound")
        value = text if isinstance(text, Problem) else _messages(ref, text)
        if isinstance(value, Problem):
            return value
        messages, secret = value, secret or ref.kind == "Secret"
    try:
        prompt = Prompt(system, canonical_tools(tools), canonical_messages(messages))
    except ValueError as error:
        return Problem("InvalidTools", f"spec.prompt.tools cannot be hashed: {error}")
    if prompt.size > MAX_PROMPT:
        return Problem(
            "PromptTooLarge",
            f"the system prompt, its tools and its messages have {prompt.size} bytes, and the limit is "
            f"{MAX_PROMPT}: shorten them",
        )
    actual = prompt.fingerprint
    if spec.fingerprint is not None and spec.fingerprint != actual:
        return Problem(
            "FingerprintMismatch",
            f"the prompt hashes to {actual}, spec.prompt.fingerprint pins {spec.fingerprint}: "
            "restore the text or change the pin",
        )
    return PromptText(prompt, actual, secret)


NOTHING = PromptText(Prompt(""), Prompt("").fingerprint, secret=False)
"""The prompt of a group that declares none: no request is matched by it, and any number of groups may have it."""

OBSERVED_WITHIN = timedelta(minutes=1)
"""Time for which a new group waits for the first status of an older one, whose fingerprint decides on a conflict."""


def awaits_sibling(
    group: GroupObject, siblings: Sequence[Sibling], now: datetime, since: datetime | None = None
) -> bool:
    """Return True if the fingerprint of an older group is unknown, and OBSERVED_WITHIN has not passed.

    If two groups with the same prompt are created together, neither has a status at its first pass; the same is true of
    groups that were created while no operator was running.

    Args:
        group: the group.
        siblings: the others that serve its model.
        now: the time.
        since: time of this process's first pass over the group; None where only the creation of the others counts.
    """
    return any(
        not sibling.observed
        and _is_older(sibling, group)
        and now - max(filter(None, (parse_time(sibling.created), since)), default=now) < OBSERVED_WITHIN
        for sibling in siblings
    )


def _is_older(sibling: Sibling, group: GroupObject) -> bool:
    """Order groups by creation, then by name: routers assign a prefix to the first group in this order."""
    return (sibling.created, sibling.name) < (group.created, group.key.name)


def conflict(group: GroupObject, fingerprint: Fingerprint, siblings: Sequence[Sibling]) -> Problem | None:
    """Return the problem that an older group claims the same prefix of the same model; None if none does.

    The group that this one replaces, by its annotation, does not count: both serve until the older one is deleted.
    """
    older = [
        sibling
        for sibling in siblings
        if sibling.fingerprint == fingerprint and _is_older(sibling, group) and sibling.name != group.replaces
    ]
    if not older:
        return None
    first = min(older, key=lambda item: (item.created, item.name))
    return Problem(
        "Conflict",
        f"PromptGroup {first.name} is older and serves the same model with the same prompt ({fingerprint}): "
        "delete one of the two or change its prompt, or annotate it with "
        f"{names.ANNOTATION_REPLACES}={first.name} to let it take over",
    )


def _ref(source: TextSource | None, field: str) -> _Ref | None:
    if source is None:
        return None
    if source.config_map_key_ref is not None:
        return _Ref("ConfigMap", source.config_map_key_ref, field)
    if source.secret_key_ref is not None:
        return _Ref("Secret", source.secret_key_ref, field)
    return None


def _system(spec: PromptSpec, values: Values) -> tuple[str, bool] | Problem:
    """Return the system text, and True if it comes from a Secret."""
    ref = _ref(spec.system_from, "systemFrom")
    text: str | Problem = spec.system or ""
    if ref is not None:
        text = _lookup(ref, values, "PromptNotFound")
    if isinstance(text, Problem):
        return text
    if not text.strip() and (ref is not None or text):
        place = _at(ref) if ref is not None else "spec.prompt.system"
        subject = "has nothing but blanks" if text else "is empty"
        return Problem("EmptyPrompt", f"{place} {subject}: write the system prompt there")
    return text, ref is not None and ref.kind == "Secret"


def _at(ref: _Ref) -> str:
    return f"key {ref.ref.key} of {ref.kind} {ref.ref.name} (spec.prompt.{ref.field})"


def _lookup(ref: _Ref, values: Values, reason: str) -> str | Problem:
    data = values.get((ref.kind, ref.ref.name))
    if data is None:
        return Problem(reason, f"{ref.kind} {ref.ref.name} (spec.prompt.{ref.field}) does not exist")
    if ref.ref.key not in data:
        why = lacking(data, ref.ref.key)
        return Problem(reason, f"{_at(ref)} {why}{' in that object' if why == lacking(None, '') else ''}")
    return data[ref.ref.key]


def _tools(ref: _Ref, text: str) -> list[Any] | Problem:
    """Return the tool definitions in a text, if they have a canonical form."""
    expected = "a JSON list of tool definitions"
    return _listed(ref, text, "InvalidTools", expected, lambda tools: all(isinstance(tool, dict) for tool in tools))


def _messages(ref: _Ref, text: str) -> list[tuple[str, str]] | Problem:
    """Return the roles and texts of the messages in a text."""
    expected = f"a JSON list of 2 to {MAX_MESSAGES} messages with role and content, by user and assistant in turn"
    listed = _listed(ref, text, "InvalidMessages", expected, _are_messages)
    return listed if isinstance(listed, Problem) else [(item["role"], item["content"]) for item in listed]


def _are_messages(listed: Sequence[Any]) -> bool:
    whole = all(
        isinstance(item, dict)
        and item.keys() == {"role", "content"}
        and isinstance(item["content"], str)
        and item["content"]
        for item in listed
    )
    return whole and 0 < len(listed) <= MAX_MESSAGES and take_turns([item["role"] for item in listed])


def _listed(
    ref: _Ref, text: str, reason: str, expected: str, is_expected: Callable[[Sequence[Any]], bool]
) -> list[Any] | Problem:
    """Return the list in a text of JSON. Problems state the position of the error, and never quote the text."""
    try:
        listed = json.loads(text)
        if not isinstance(listed, list) or not is_expected(listed):
            return Problem(reason, f"{_at(ref)} is not {expected}")
        if nesting.is_deeper(listed, 1 + FREE_LEVELS):  # the same limit as in the spec
            return Problem(reason, f"{_at(ref)} is nested too deeply to be read")
        canonical_tools(listed).encode()
    except json.JSONDecodeError as error:
        where = f"{error.msg} at line {error.lineno} column {error.colno}"
        return Problem(reason, f"{_at(ref)} is not JSON: {where}")
    except RecursionError:
        return Problem(reason, f"{_at(ref)} is nested too deeply to be read")
    except ValueError:
        # NaN, a number too large, half a surrogate pair: the error would quote the text
        return Problem(reason, f"{_at(ref)} holds a number or a character that JSON does not allow")
    return listed
