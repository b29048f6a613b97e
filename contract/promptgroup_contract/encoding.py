"""Reads and writes the routing table as JSON: PromptRoutes, table files and the copy that a router keeps on disk.

The fields say themselves how they stand there (`wire`). Here is what is not about one field: the version of the format.
A router refuses one that it does not know; the caller then keeps the last good table.
"""

from collections.abc import Generator, Mapping
from typing import Any

from promptgroup_contract.access import Access
from promptgroup_contract.table import Group, RoutingTable, Slot, TableError
from promptgroup_contract.wire import UnfitError, codec_of, kind_of, shown

FORMAT = 1
"""Version of the encoding. Additions keep it; a change of meaning raises it."""
GUARDED_FORMAT = 2
"""That of a group which isolates its callers, or whose engines serve TLS: a router that cannot do that must not serve
it."""


def encode_group(group: Group) -> dict[str, Any]:
    """Return the `spec` of the group's PromptRoute, without prompt text."""
    return _encode_group(group, whole=False)


def _encode_group(group: Group, *, whole: bool) -> dict[str, Any]:
    serves_tls = any(slot.tls is not None for revision in group.revisions for slot in revision.slots)
    guarded = group.callers.isolates or serves_tls
    return {"format": GUARDED_FORMAT if guarded else FORMAT, **codec_of(Group).write(group, whole)}


def encode_access(access: Access) -> dict[str, Any]:
    """Return the `access` of a PromptRoute, which is also the content of the router's file of its default."""
    return codec_of(Access).write(access)


def encode_table(table: RoutingTable) -> dict[str, Any]:
    """Return a table file with the prompt text inline. Guard it as you would guard the prompts."""
    groups = [
        {"namespace": group.namespace, "name": group.name, **_encode_group(group, whole=True)} for group in table.groups
    ]
    return {"format": FORMAT, "version": table.version, "groups": groups}


def decode_table(data: object) -> RoutingTable:
    """Return the table of a parsed table file.

    Raises:
        TableError: the value is no table, has an unknown format, or has a field that cannot be used.
    """
    table = check_table(data)
    groups: dict[str, Group] = {}
    for index, item in enumerate(table.get("groups", [])):
        add_group(groups, decode_entry(index, item))
    return RoutingTable(tuple(groups.values()), table.get("version", ""))


def check_table(data: object) -> Mapping[str, Any]:
    """Return the object of a table file, whose groups are not looked at.

    Raises:
        TableError: the value is no table, or has an unknown format.
    """
    table = _object(data, "table")
    _check_format(table, "table")
    version, listed = table.get("version", ""), table.get("groups", [])
    if not isinstance(version, str):
        raise TableError(f"table: version is {shown(version)}, expected a string")
    if not isinstance(listed, list):
        raise TableError(f"table: groups is {kind_of(listed)}, expected a list")
    return table


def decode_entry(index: int, item: object) -> Group:
    """Return a group of a table file, which stands there at an index; raises TableError."""
    entry = _object(item, f"groups[{index}]")
    for key in ("namespace", "name"):
        if not isinstance(entry.get(key), str):
            raise TableError(f"groups[{index}]: {key} is {shown(entry.get(key))}, expected a string")
    return decode_group(entry["namespace"], entry["name"], entry)


def add_group(groups: dict[str, Group], group: Group) -> None:
    """Add a group of a table file to those before it, by full name; raises TableError if it is listed twice."""
    name = f"{group.namespace}/{group.name}"
    if name in groups:
        raise TableError(f"groups: {name} is listed twice")
    groups[name] = group


def decode_group(namespace: str, name: str, spec: object) -> Group:
    """Return the group of a PromptRoute's `spec`, or of an entry of a table file.

    Raises:
        TableError: the format is unknown, or a field cannot be used.
    """
    at = f"{namespace}/{name}"
    _check_format(_object(spec, at), at)
    try:
        group: Group = codec_of(Group).read(spec, {"namespace": namespace, "name": name})
    except UnfitError as error:
        raise TableError(error.text(at)) from None
    return group


def decode_steps(namespace: str, name: str, spec: object) -> Generator[None, None, Group]:
    """Return the group of a PromptRoute's `spec`, decoded in steps of a slot: it may have thousands.

    Raises:
        TableError: the format is unknown, or a field cannot be used.
    """
    try:
        made = (yield from _slot_steps(spec)) if isinstance(spec, dict) else spec
    except UnfitError as error:
        raise TableError(error.text(f"{namespace}/{name}")) from None
    return decode_group(namespace, name, made)


def _slot_steps(spec: dict[str, Any]) -> Generator[None, None, dict[str, Any]]:
    """Return a `spec` whose slots are read already; what is no list of slots is left to the codec."""
    listed = spec.get("revisions")
    if not isinstance(listed, list):
        return spec
    codec = codec_of(Slot)
    revisions = []
    for number, revision in enumerate(listed):
        slots = revision.get("slots") if isinstance(revision, dict) else None
        if not isinstance(slots, list):
            revisions.append(revision)
            continue
        read = []
        for index, slot in enumerate(slots):
            try:
                read.append(codec.read(slot))
            except UnfitError as error:
                place = f"revisions[{number}]"
                raise error.within(f"[{index}]").within("slots").within(place) from None
            yield
        revisions.append({**revision, "slots": read})
    return {**spec, "revisions": revisions}


def decode_access(item: object, at: str) -> Access:
    """Return an access. An unknown type is an error, and so is a field that the type needs and does not have.

    Args:
        item: the parsed JSON.
        at: where it stands, for messages.

    Raises:
        TableError: a field cannot be used.
    """
    try:
        access: Access = codec_of(Access).read(item)
    except UnfitError as error:
        raise TableError(error.text(at)) from None
    return access


def _object(value: object, at: str) -> Mapping[str, Any]:
    if not isinstance(value, dict):
        raise TableError(f"{at} is {kind_of(value)}, expected an object")
    return value


def _check_format(data: Mapping[str, Any], at: str) -> None:
    if "format" not in data:
        raise TableError(f"{at}: it has no format, so it is neither a table nor a PromptRoute")
    if data["format"] not in (FORMAT, GUARDED_FORMAT):
        raise TableError(
            f"{at}: format is {shown(data['format'])}, this router reads formats {FORMAT} and {GUARDED_FORMAT}: "
            "upgrade the router"
        )
