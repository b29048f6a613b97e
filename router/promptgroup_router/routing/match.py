"""Decides which group a request belongs to: one that the client names, or one whose prompt it sends.

| x-promptgroup | model is           | prompt                        | then                                   |
|---------------|--------------------|-------------------------------|----------------------------------------|
| names a group | anything           | the group's                   | by name                                |
| names none    | anything           |                               | 404                                    |
| absent        | a model            | begins with a declared prefix | by content, the longest such prefix    |
| absent        | a group's name     | the group's                   | by name                                |
| absent        | a model            | begins with none              | no match: any replica of the model     |
| absent        | neither            |                               | 404                                    |

Content has precedence over names, so that a group may have the name of the model that it serves. An alias of a model
counts as the model; `rings/aliases.py` decides which model it stands for. Where a name is a model in one namespace and
a group in another, or a group in several, the namespace that had it first keeps it: `rings/names.py` decides that.

A router that serves several namespaces isolates them: a request belongs to one namespace, and only that namespace's
groups, names and replicas count for it. The namespace of a request is, in this order,

1. the one that the header `x-promptgroup-namespace` names;
2. that of the group that the client names, if no older group has the name for its model;
3. that of the oldest group whose declared prefix the request begins with: a younger group of another namespace takes no
   request from it by declaring the same prefix, or a longer one;
4. the one that first had a group of the model.

So no group that is created later, in another namespace, changes where a request goes, and no alias that a group gets.
The header selects, it does not authenticate: see docs/development/decisions/0012 and 0076.
"""

import enum
from dataclasses import dataclass

from promptgroup_contract.names import HEADER_GROUP, HEADER_NAMESPACE
from promptgroup_router.apis.conversation import first_messages
from promptgroup_router.apis.request import ParsedRequest
from promptgroup_router.base.errors import ApiError, shown
from promptgroup_router.rings.index import GroupEntry, RevisionEntry, RoutingIndex, TenantEntry


@dataclass(slots=True)
class ByName:
    """A request whose client named a group; the group's prompt is put in front."""

    group: GroupEntry


@dataclass(slots=True)
class ByContent:
    """A request that contains a declared prompt."""

    claim: RevisionEntry


@dataclass(slots=True)
class NoMatch:
    """A request that matches a model and a namespace, but no group."""

    model: TenantEntry
    """The candidates that serve the model in the request's namespace."""


Match = ByName | ByContent | NoMatch


class MatchedBy(enum.StrEnum):
    """The kind of a match, in logs and metrics."""

    NAME = "name"
    CONTENT = "content"
    NONE = "none"


def match_group(view: RoutingIndex, request: ParsedRequest, named: str = "", namespace: str = "") -> Match:
    """Return the group of a request.

    Args:
        view: the routing table.
        request: the request.
        named: the header that names a group.
        namespace: the header that names a namespace.

    Raises:
        ApiError: 404, the model or group is not served.
    """
    if named:
        return ByName(_named(view, named, HEADER_GROUP, namespace))
    model = view.models.get(request.model)
    tenant = (model.tenants.get(namespace) if namespace else model.first) if model is not None else None
    if model is not None and tenant is not None:
        claims = tenant.claims if namespace else model.claims
        claim = claims.match(request.tools, request.system, namespace, lambda count: first_messages(request, count))
        if claim is not None:
            return ByContent(claim)
        group = view.names.get(f"{tenant.namespace}/{request.model}")
        return ByName(group) if group is not None else NoMatch(tenant)
    if f"{namespace}/{request.model}" in view.names or request.model in view.names:
        return ByName(_named(view, request.model, "model", namespace))
    raise ApiError(
        404,
        f"model {shown(request.model)} is neither a model nor a PromptGroup served {_where(namespace)}: GET /v1/models "
        "lists both",
        param="model",
        code="model_not_found",
    )


def _named(view: RoutingIndex, name: str, param: str, namespace: str) -> GroupEntry:
    group = view.names.get(f"{namespace}/{name}") if namespace else None
    group = group or view.names.get(name)
    if group is not None and (not namespace or group.group.namespace == namespace):
        return group
    raise ApiError(
        404,
        f"{param} is {shown(name)}, and no PromptGroup of that name is served {_where(namespace)}: GET /v1/models "
        "lists them",
        param=param,
        code="group_not_found",
    )


def _where(namespace: str) -> str:
    return f"in namespace {shown(namespace)} ({HEADER_NAMESPACE})" if namespace else "here"
