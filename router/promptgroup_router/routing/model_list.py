"""The models and groups that clients may ask for, as OpenAI's and Anthropic's APIs list them.

A group is a model whose parent is the model that its replicas run. A LoRA adapter is a model whose parent is the model
that it is made for. An alias is a model without a parent whose root is the model that it stands for.
"""

from typing import Any
from urllib.parse import unquote_to_bytes

import orjson

from promptgroup_router.base.errors import ApiError, shown
from promptgroup_router.rings.index import GroupEntry, RoutingIndex, TenantEntry
from promptgroup_router.routing.route import Identify, gravest, identify_nobody

MODELS_PATH = b"/v1/models"

_PREFIX = MODELS_PATH + b"/"
_UNKNOWN_TIME = "1970-01-01T00:00:00Z"
"""The time of creation that Anthropic's API reports for a model with an unknown release date."""


def model_list(index: RoutingIndex, identify: Identify = identify_nobody, *, anthropic: bool = False) -> bytes:
    """Return the list of the groups that the sender may use, and their models; `anthropic` chooses that API's form.

    Raises:
        ApiError: 401, 403 or 503: there are groups, and the sender may use none.
    """
    groups = _admitting(index, identify)
    served = {group.group.model for group in groups}
    bases = {group.group.model: group.group.base_model for group in groups if group.group.base_model}
    models = [
        _model(name) | {"parent": bases.get(name)}
        for name, entry in index.models.items()
        if name in served and entry.first is not None
    ]
    models += [
        _alias(name, meant) for name, meant in index.aliases.items() if name not in served and _is_served(meant, groups)
    ]
    models += [_group(_shortest_name(index, group), group) for group in groups]
    if not anthropic:
        return orjson.dumps({"object": "list", "data": models})
    data = [_anthropic(model) for model in models]
    ends = {"first_id": data[0]["id"], "last_id": data[-1]["id"]} if data else {"first_id": None, "last_id": None}
    return orjson.dumps({"data": data, "has_more": False} | ends)


def model_card(
    index: RoutingIndex, path: bytes, identify: Identify = identify_nobody, *, anthropic: bool = False
) -> bytes | None:
    """Return one model, by a path; None if the path names no model at all.

    Raises:
        ApiError: 404, there is no such model or group; 401, 403 or 503, the sender may not use it.
    """
    if not path.startswith(_PREFIX):
        return None
    name = unquote_to_bytes(path[len(_PREFIX) :]).decode(errors="replace")
    group = index.names.get(name)
    entry = index.models.get(name)
    if entry is not None and entry.first is not None:
        model = _model_or_alias(index, name, _admitting(index, identify))
    elif group is not None:
        identify(group.group.access, group.group.namespace)
        model = _group(name, group)
    else:
        raise _unknown(name)
    return orjson.dumps(_anthropic(model) if anthropic else model)


def _model_or_alias(index: RoutingIndex, name: str, groups: list[GroupEntry]) -> dict[str, Any]:
    """Return the entry of a model's name, or of an alias, for a caller who may use these groups.

    Raises:
        ApiError: 404, none of them serves it.
    """
    named = [group.group for group in groups if group.group.model == name]
    if named:
        return _model(name) | {"parent": named[0].base_model or None}
    meant = index.aliases.get(name)
    if meant is not None and _is_served(meant, groups):
        return _alias(name, meant)
    raise _unknown(name)


def _is_served(meant: TenantEntry, groups: list[GroupEntry]) -> bool:
    return any((group.group.namespace, group.group.model) == (meant.namespace, meant.model) for group in groups)


def _admitting(index: RoutingIndex, identify: Identify) -> list[GroupEntry]:
    """Return the groups that let the sender of a request in.

    Raises:
        ApiError: there are groups, and none does.
    """
    admitting: list[GroupEntry] = []
    refusals: list[ApiError] = []
    for group in index.groups:
        try:
            identify(group.group.access, group.group.namespace)
        except ApiError as error:
            refusals.append(error)
        else:
            admitting.append(group)
    if refusals and not admitting:
        raise gravest(refusals)
    return admitting


def _unknown(name: str) -> ApiError:
    message = f"model {shown(name)} is neither a model nor a PromptGroup served here: GET /v1/models lists both"
    return ApiError(404, message, param="model", code="model_not_found")


def _model(name: str) -> dict[str, Any]:
    return {"id": name, "object": "model", "created": 0, "owned_by": "engine", "root": name, "parent": None}


def _alias(name: str, meant: TenantEntry) -> dict[str, Any]:
    return _model(name) | {"root": meant.model}


def _group(name: str, group: GroupEntry) -> dict[str, Any]:
    model = group.group.model
    return _model(name) | {"owned_by": group.group.namespace, "root": model, "parent": model}


def _anthropic(model: dict[str, Any]) -> dict[str, Any]:
    return {"type": "model", "id": model["id"], "display_name": model["id"], "created_at": _UNKNOWN_TIME}


def _shortest_name(index: RoutingIndex, group: GroupEntry) -> str:
    short = group.group.name
    entry = index.models.get(short)
    taken = entry is not None and entry.first is not None
    return short if index.names.get(short) is group and not taken else group.label
