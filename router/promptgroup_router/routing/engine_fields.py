"""Removes fields from a body that only the engine's operator may set, and adds the caller's salt."""

from collections.abc import Mapping
from collections.abc import Set as AbstractSet
from copy import copy
from typing import Any

from promptgroup_contract.caller_rules import EngineField
from promptgroup_router.apis.request import ApiKind, ParsedRequest, encoded
from promptgroup_router.base.errors import ApiError

_ALL = frozenset(field.value for field in EngineField)
_NESTING = frozenset((EngineField.VLLM_XARGS.value, "sampling_params", "extra_args"))
"""Objects, or lists of them, whose members engines read as fields of `EngineField`. vLLM merges `vllm_xargs` with them,
its API of tokens does so with `sampling_params.extra_args`, and SGLang's own API has some in `sampling_params`."""
_DEPTH = 2
"""Most of these objects within each other that an engine reads."""
_READ = _ALL | _NESTING
NONE: frozenset[str] = frozenset()
CUTTING = frozenset(("truncate_prompt_tokens",))
"""Fields by which vLLM drops the beginning of a conversation, with a prompt that a router has put there."""
CACHE_FIELD = "cache"
"""LiteLLM's field for the response cache."""
TO_ROUTER = frozenset((CACHE_FIELD,))
"""Fields that are for the router, in groups that keep answers."""


def without_engine_fields(
    request: ParsedRequest, allowed: AbstractSet[str] = NONE, further: frozenset[str] = NONE
) -> ParsedRequest:
    """Return a request without the fields of `EngineField` that its group does not allow, and without further ones.

    Raises:
        ApiError: 400: they are in a form, which is not written anew.
    """
    if _READ.isdisjoint(request.doc) and (not further or further.isdisjoint(request.doc)):
        return request
    doc = _without(request.doc, (_ALL - allowed) | further, _DEPTH)
    if doc is request.doc:
        return request
    if request.kind is ApiKind.FORM:
        field = next(name for name in request.doc if doc.get(name) != request.doc[name])
        raise ApiError(400, f"{field} is for the engine's operator: leave it out of the form", param=field)
    sent = copy(request)
    sent.doc, sent.raw = doc, encoded(doc)
    return sent


def names_in(*docs: Mapping[str, Any], depth: int = _DEPTH) -> dict[str, Any]:
    """Return what `without_engine_fields` reads of bodies: names of `EngineField` in their places."""
    names: dict[str, Any] = {name: None for doc in docs for name in doc if name in _ALL}
    for name in _NESTING if depth else ():
        inner = names_in(*(item for doc in docs for item in _objects(doc.get(name))), depth=depth - 1)
        if inner:
            names[name] = inner
    return names


def _objects(value: Any) -> list[dict[str, Any]]:
    """Return an object, or those of a list."""
    return [item for item in (value if isinstance(value, list) else [value]) if isinstance(item, dict)]


def _without(doc: dict[str, Any], unwanted: AbstractSet[str], depth: int) -> dict[str, Any]:
    """Return an object without some members, also of the objects in it that engines read; itself if it has none."""
    kept = {name: value for name, value in doc.items() if name not in unwanted}
    changed = len(kept) != len(doc)
    for name in _NESTING if depth else ():
        if name not in kept:
            continue
        value = kept[name]
        items = value if isinstance(value, list) else [value]
        cleaned = [_without(item, unwanted, depth - 1) if isinstance(item, dict) else item for item in items]
        if any(new is not old for new, old in zip(cleaned, items, strict=True)):
            kept[name] = cleaned if isinstance(value, list) else cleaned[0]
            changed = True
    return kept if changed else doc


def with_text_field(body: bytes, name: str, value: str) -> bytes:
    """Return a body, a JSON object with at least one field, with a further one whose value needs no escapes."""
    start = body.index(b"{") + 1
    return b'%b"%b":"%b",%b' % (body[:start], name.encode(), value.encode(), body[start:])


def without_media_ids(request: ParsedRequest) -> ParsedRequest:
    """Return a request without its client's ids of images: vLLM would use another request's image with the id."""
    if not request.media:
        return request
    doc = {name: _without_ids(value) if name in _CONVERSATIONS else value for name, value in request.doc.items()}
    sent = copy(request)
    sent.doc, sent.raw, sent.messages = doc, encoded(doc), doc.get("messages", request.messages)
    return sent


_CONVERSATIONS = ("messages", "input")


def _without_ids(items: Any) -> Any:
    if not isinstance(items, list):
        return items
    return [_without_id(item) if isinstance(item, dict) else item for item in items]


def _without_id(item: dict[str, Any]) -> dict[str, Any]:
    content = item.get("content")
    if not isinstance(content, list):
        return item
    parts = [
        {key: value for key, value in part.items() if key != "uuid"} if isinstance(part, dict) else part
        for part in content
    ]
    return item | {"content": parts}
