"""PromptRoutes as lists and watch events tell of them → one routing table. Pure.

A route that cannot be read keeps its last good value; a namespace that cannot be listed keeps its last good routes.
"""

from collections.abc import Mapping
from dataclasses import dataclass, replace
from typing import Any, NamedTuple

import orjson
import xxhash

from promptgroup_router.contract.encoding import decode_group, encode_table
from promptgroup_router.contract.table import Group, Prompt, PromptRef, Revision, RoutingTable, TableError


class RouteSource(NamedTuple):
    """An immutable object with the text of a revision's prompt."""

    namespace: str
    ref: PromptRef
    fingerprint: str


class Expired(Exception):  # noqa: N818 - an outcome of a watch
    """The API server has forgotten the version that the watch went on from: list again."""


@dataclass(frozen=True, slots=True)
class RouteChange:
    """What an event or a list brought."""

    version: str
    """resourceVersion to go on from."""
    problems: tuple[str, ...] = ()
    """Routes that could not be read: which, and why."""


class Routes:
    """The routes of all served namespaces."""

    def __init__(self, start: RoutingTable | None = None, namespaces: tuple[str, ...] = ()) -> None:
        self._groups: dict[tuple[str, str], Group] = {}
        self._prompts: dict[RouteSource, Prompt] = {}
        for group in start.groups if start is not None else ():
            if group.namespace in namespaces:
                self._groups[group.namespace, group.name] = group
                for revision in group.revisions:
                    if revision.prompt is not None and revision.prompt_from is not None:
                        self.learn(
                            RouteSource(group.namespace, revision.prompt_from, revision.fingerprint), revision.prompt
                        )

    def list(self, namespace: str, listed: object) -> RouteChange:
        """A namespace's whole list.

        Raises:
            TableError: it is no list.
        """
        if not isinstance(listed, Mapping) or not isinstance(listed.get("items"), list):
            raise TableError(f"namespace {namespace}: the API server's answer is no list")
        seen, problems = set(), []
        for item in listed["items"]:
            name = _name(item)
            seen.add((namespace, name))
            if problem := self._put(namespace, name, item):
                problems.append(problem)
        for key in [key for key in self._groups if key[0] == namespace and key not in seen]:
            del self._groups[key]
        return RouteChange(_version(listed), tuple(problems))

    def event(self, namespace: str, event: object) -> RouteChange:
        """An event of a namespace's watch.

        Raises:
            Expired: list again.
            TableError: it is no event.
        """
        kind = event.get("type") if isinstance(event, Mapping) else None
        item = event.get("object") if isinstance(event, Mapping) else None
        if not isinstance(item, Mapping):
            raise TableError(f"namespace {namespace}: no watch event")
        match kind:
            case "ADDED" | "MODIFIED":
                problem = self._put(namespace, _name(item), item)
                return RouteChange(_version(item), (problem,) if problem else ())
            case "DELETED":
                self._groups.pop((namespace, _name(item)), None)
                return RouteChange(_version(item))
            case "BOOKMARK":
                return RouteChange(_version(item))
            case "ERROR" if item.get("code") == 410:
                raise Expired
            case _:
                raise TableError(f"namespace {namespace}: watch event {kind!r}: {item.get('message', '')}")

    def learn(self, source: RouteSource, prompt: Prompt) -> None:
        """The text of a revision's prompt, verified."""
        self._prompts[source] = prompt

    def missing(self) -> set[RouteSource]:
        """Prompts that routes name and whose text is not known; forgets those that none names any more."""
        named = {
            RouteSource(group.namespace, revision.prompt_from, revision.fingerprint)
            for group in self._groups.values()
            for revision in group.revisions
            if revision.prompt_from is not None
        }
        for source in self._prompts.keys() - named:
            del self._prompts[source]
        return named - self._prompts.keys()

    def table(self) -> RoutingTable:
        """All routes, with the prompts that are known; the version is a hash of it."""
        groups = tuple(self._with_prompts(self._groups[key]) for key in sorted(self._groups))
        digest = xxhash.xxh3_64_hexdigest(orjson.dumps(encode_table(RoutingTable(groups))))
        return RoutingTable(groups, digest)

    def _put(self, namespace: str, name: str, item: object) -> str:
        spec = item.get("spec") if isinstance(item, Mapping) else None
        try:
            self._groups[namespace, name] = decode_group(namespace, name, spec)
        except TableError as error:
            return str(error)
        return ""

    def _with_prompts(self, group: Group) -> Group:
        return replace(group, revisions=tuple(self._with_prompt(group, revision) for revision in group.revisions))

    def _with_prompt(self, group: Group, revision: Revision) -> Revision:
        if revision.prompt_from is None:
            return revision
        source = RouteSource(group.namespace, revision.prompt_from, revision.fingerprint)
        return replace(revision, prompt=self._prompts.get(source))


def _name(item: object) -> str:
    return str(_metadata(item).get("name", ""))


def _version(item: object) -> str:
    return str(_metadata(item).get("resourceVersion", ""))


def _metadata(item: object) -> Mapping[str, Any]:
    metadata = item.get("metadata") if isinstance(item, Mapping) else None
    return metadata if isinstance(metadata, Mapping) else {}
