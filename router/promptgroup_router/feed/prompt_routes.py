"""Builds one routing table from lists and watch events of PromptRoutes. Does no I/O and reads no clock.

For a route that cannot be parsed the last good value stays in use, for a namespace that cannot be listed its last
routes.
"""

from collections.abc import Generator, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any, NamedTuple

import orjson
import xxhash

from promptgroup_contract.encoding import decode_steps, encode_table
from promptgroup_contract.fingerprint import Fingerprint
from promptgroup_contract.table import Group, Prompt, PromptRef, Revision, RoutingTable, TableError
from promptgroup_router.base.steps import at_once, sorted_steps
from promptgroup_router.feed.slot_address import Network, check_steps
from promptgroup_router.rings.room import Room, Size, size_of


class RouteSource(NamedTuple):
    """An immutable object with the text of a revision's prompt."""

    namespace: str
    ref: PromptRef
    fingerprint: Fingerprint


class Expired(Exception):  # noqa: N818 - an outcome of a watch
    """The API server no longer has the resource version of the watch: list again."""


@dataclass(frozen=True, slots=True)
class RouteChange:
    """The result of a list or of a watch event."""

    version: str
    """resourceVersion from which a watch continues."""
    problems: tuple[str, ...] = ()
    """One message for each route that could not be read."""


class Routes:
    """The PromptRoutes of all served namespaces."""

    def __init__(
        self, start: RoutingTable | None = None, namespaces: tuple[str, ...] = (), networks: Sequence[Network] = ()
    ) -> None:
        """Start empty, or with a copy.

        Args:
            start: the last good table.
            namespaces: those of the copy's groups that are still served.
            networks: networks whose addresses are taken although no pod of a cluster has them.
        """
        self._networks = networks
        self._groups: dict[tuple[str, str], Group] = {}
        self._prompts: dict[RouteSource, Prompt] = {}
        self._room = Room()
        self._sources: dict[RouteSource, dict[tuple[str, str], None]] = {}
        """A prompt → namespaces and names of the routes that name it."""
        self._changed: dict[tuple[str, str], None] = {}
        """Namespaces and names of routes that were added, changed or deleted since the last table."""
        self._made: dict[tuple[str, str], tuple[Group, bytes]] = {}
        """Namespace and name → a group with its loaded prompts as it was in the last table, and the hash of its
        content."""
        self._order: list[tuple[str, str]] = []
        """Namespaces and names of the last table, in its order."""
        for group in start.groups if start is not None else ():
            if group.namespace in namespaces:
                self._set(group.namespace, group.name, group)
                slots = sum(len(revision.slots) for revision in group.revisions)
                self._room.take(group.namespace, group.name, Size(len(group.revisions), slots))
                for revision in group.revisions:
                    if revision.prompt is not None and revision.prompt_from is not None:
                        self.learn(
                            RouteSource(group.namespace, revision.prompt_from, revision.fingerprint), revision.prompt
                        )

    def list(self, namespace: str, listed: object) -> RouteChange:
        """Replace a namespace's routes at once: see `list_steps`."""
        return at_once(self.list_steps(namespace, listed))

    def list_steps(self, namespace: str, listed: object) -> Generator[None, None, RouteChange]:
        """Replace a namespace's routes by a list of them, in steps.

        Raises:
            TableError: the answer is not a list.
        """
        if not isinstance(listed, Mapping) or not isinstance(listed.get("items"), list):
            raise TableError(f"namespace {namespace}: the API server's answer is not a list")
        items = listed["items"]
        names = {_name(item) for item in items}
        for key in [key for key in self._groups if key[0] == namespace and key[1] not in names]:
            self._set(*key, None)
            self._room.leave(*key)
            yield
        problems = []
        # each is released once it is parsed: releasing thousands at once takes a tenth of a second
        items.reverse()
        while items:
            item = items.pop()
            problem = yield from self._put(namespace, _name(item), item)
            if problem:
                problems.append(problem)
            yield
        return RouteChange(_version(listed), tuple(problems))

    def event(self, namespace: str, event: object) -> RouteChange:
        """Apply an event of a namespace's watch at once: see `event_steps`."""
        return at_once(self.event_steps(namespace, event))

    def event_steps(self, namespace: str, event: object) -> Generator[None, None, RouteChange]:
        """Apply an event of a namespace's watch: a route may have thousands of slots.

        Raises:
            Expired: the routes must be listed again.
            TableError: the object is not a watch event.
        """
        kind = event.get("type") if isinstance(event, Mapping) else None
        item = event.get("object") if isinstance(event, Mapping) else None
        if not isinstance(item, Mapping):
            raise TableError(f"namespace {namespace}: the API server sent something that is not a watch event")
        match kind:
            case "ADDED" | "MODIFIED":
                problem = yield from self._put(namespace, _name(item), item)
                return RouteChange(_version(item), (problem,) if problem else ())
            case "DELETED":
                self._set(namespace, _name(item), None)
                self._room.leave(namespace, _name(item))
                return RouteChange(_version(item))
            case "BOOKMARK":
                return RouteChange(_version(item))
            case "ERROR" if item.get("code") == 410:
                raise Expired
            case _:
                raise TableError(f"namespace {namespace}: watch event {kind!r}: {item.get('message', '')}")

    def learn(self, source: RouteSource, prompt: Prompt) -> None:
        """Keep the verified text of a revision's prompt."""
        self._prompts[source] = prompt
        self._changed |= self._sources.get(source, {})

    def missing(self) -> set[RouteSource]:
        """Return the prompts that routes name and whose text has not been loaded; drop texts that no route names."""
        for source in [source for source in self._prompts if source not in self._sources]:
            del self._prompts[source]
        return {source for source in self._sources if source not in self._prompts}

    def misses(self, source: RouteSource) -> bool:
        """Return True if a route names a prompt whose text has not been loaded."""
        return source in self._sources and source not in self._prompts

    def table(self) -> RoutingTable:
        """Return the table of all routes at once: see `table_steps`."""
        return at_once(self.table_steps())

    def table_steps(self) -> Generator[None, None, RoutingTable]:
        """Return the table of all routes with the loaded prompts, made in steps of a group.

        Groups that have not changed are the same objects as in the table before. Its version is a hash of its content,
        for which only the changed groups are hashed.
        """
        changed, self._changed = self._changed, {}  # events go on between the steps
        moved = False
        for key in changed:
            route = self._groups.get(key)
            if route is None:
                moved = self._made.pop(key, None) is not None or moved
                continue
            group, before = self._with_prompts(route), self._made.get(key)
            moved = moved or before is None
            if before is None or before[0] != group:
                encoded = encode_table(RoutingTable((group,)))
                yield
                self._made[key] = group, xxhash.xxh3_64_digest(orjson.dumps(encoded))
            yield
        if moved:
            self._order = yield from sorted_steps(list(self._made), tuple)
        table_hash = xxhash.xxh3_64()
        groups = []
        for key in self._order:
            group, digest = self._made[key]
            table_hash.update(digest)
            groups.append(group)
            yield
        return RoutingTable(tuple(groups), table_hash.hexdigest())

    def _set(self, namespace: str, name: str, group: Group | None) -> None:
        """Replace a route's group; None for a route that was deleted."""
        key = namespace, name
        before = self._groups.pop(key, None)
        for source in set(_sources(before)):
            del self._sources[source][key]
            if not self._sources[source]:
                del self._sources[source]
        for source in _sources(group):
            self._sources.setdefault(source, {})[key] = None
        if group is not None:
            self._groups[key] = group
        if before is not None or group is not None:
            self._changed[key] = None

    def _put(self, namespace: str, name: str, item: object) -> Generator[None, None, str]:
        spec = item.get("spec") if isinstance(item, Mapping) else None
        try:
            size = size_of(spec)
            self._room.check(namespace, name, size)
            group = yield from decode_steps(namespace, name, spec)
            yield from check_steps(group, self._networks)
            self._room.check(namespace, name, size)  # other namespaces may have used memory since the first step
        except TableError as error:
            return str(error)
        self._set(namespace, name, group)
        self._room.take(namespace, name, size)
        return ""

    def _with_prompts(self, group: Group) -> Group:
        return replace(group, revisions=tuple(self._with_prompt(group, revision) for revision in group.revisions))

    def _with_prompt(self, group: Group, revision: Revision) -> Revision:
        if revision.prompt_from is None:
            return revision
        source = RouteSource(group.namespace, revision.prompt_from, revision.fingerprint)
        return replace(revision, prompt=self._prompts.get(source))


def _sources(group: Group | None) -> Iterator[RouteSource]:
    """Yield the prompts that the revisions of a group name."""
    if group is None:
        return
    for revision in group.revisions:
        if revision.prompt_from is not None:
            yield RouteSource(group.namespace, revision.prompt_from, revision.fingerprint)


def _name(item: object) -> str:
    return str(_metadata(item).get("name", ""))


def _version(item: object) -> str:
    return str(_metadata(item).get("resourceVersion", ""))


def _metadata(item: object) -> Mapping[str, Any]:
    metadata = item.get("metadata") if isinstance(item, Mapping) else None
    return metadata if isinstance(metadata, Mapping) else {}
