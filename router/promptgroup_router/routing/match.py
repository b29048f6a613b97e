"""Decides which group a request belongs to: one that the client names, or one whose prompt it brings.

| x-promptgroup | model is           | prompt                        | then                                   |
|---------------|--------------------|-------------------------------|----------------------------------------|
| names a group | anything           | the group's                   | by name                                |
| names none    | anything           |                               | 404                                    |
| absent        | a model            | begins with a declared prefix | by content, the longest such prefix    |
| absent        | a group's name     | the group's                   | by name                                |
| absent        | a model            | begins with none              | no match: any replica of the model     |
| absent        | neither            |                               | 404                                    |

Content comes before names, so that a group may have the name of the model that it serves. Does no I/O and reads no
clock.
"""

import enum
from dataclasses import dataclass

from promptgroup_router.apis.request import ParsedRequest
from promptgroup_router.base.errors import ApiError, shown
from promptgroup_router.contract import fingerprint
from promptgroup_router.rings.index import GroupEntry, ModelEntry, RevisionEntry, RoutingIndex


@dataclass(frozen=True, slots=True)
class ByName:
    """A request whose client named a group; the group's prompt is put in front."""

    group: GroupEntry


@dataclass(frozen=True, slots=True)
class ByContent:
    """A request that brings a declared prompt."""

    claim: RevisionEntry


@dataclass(frozen=True, slots=True)
class NoMatch:
    """A request of which only the model is known."""

    model: ModelEntry


class MatchedBy(enum.StrEnum):
    """The kind of a match, in logs and metrics."""

    NAME = "name"
    CONTENT = "content"
    NONE = "none"


def match_group(view: RoutingIndex, ask: ParsedRequest, named: str = "") -> ByName | ByContent | NoMatch:
    """Return the group of a request; `named` is the header that names one.

    Raises:
        ApiError: 404 for a model or group that is not served, 400 for a name that several groups have.
    """
    if named:
        return ByName(_named(view, named, "x-promptgroup"))
    model = view.models.get(ask.model)
    if model is not None:
        claim = _longest(model, ask)
        if claim is not None:
            return ByContent(claim)
    if ask.model in view.names or ask.model in view.ambiguous:
        return ByName(_named(view, ask.model, "model"))
    if model is None:
        raise ApiError(
            404,
            f"model {shown(ask.model)} is neither a model nor a PromptGroup served here: GET /v1/models lists both",
            param="model",
            code="model_not_found",
        )
    return NoMatch(model)


def _named(view: RoutingIndex, name: str, param: str) -> GroupEntry:
    group = view.names.get(name)
    if group is not None:
        return group
    several = view.ambiguous.get(name)
    if several is not None:
        raise ApiError(
            400,
            f"{param} is {shown(name)}, which several groups are called: name one of {', '.join(several)}",
            param=param,
            code="ambiguous_group",
        )
    raise ApiError(
        404,
        f"{param} is {shown(name)}, and no PromptGroup of that name is served here: GET /v1/models lists them",
        param=param,
        code="group_not_found",
    )


def _longest(model: ModelEntry, ask: ParsedRequest) -> RevisionEntry | None:
    """Return the claim with the longest text that the request's system text begins with and the same tools."""
    encoded = b""
    hashes: dict[int, str] = {}
    for claim in model.claims:
        if claim.preamble is not None:
            if claim.preamble.canonical_tools == ask.tools and ask.system.startswith(claim.preamble.system):
                return claim
            continue
        # the text is not known here: compare hashes of as many bytes as it has
        encoded = encoded or ask.system.encode()
        size = claim.revision.system_bytes
        if size > len(encoded):
            continue
        if size not in hashes:
            hashes[size] = fingerprint.hash_prefix(ask.tools, encoded[:size])
        if hashes[size] == claim.revision.fingerprint:
            return claim
    return None
