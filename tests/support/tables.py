"""Routing tables for tests: what a case does not name has the value of a group at rest."""

from collections.abc import Sequence
from typing import Any

from promptgroup_contract.fingerprint import hash_prefix
from promptgroup_contract.messages import canonical_messages
from promptgroup_contract.table import Group, Prompt, Revision, RoutingTable, Slot, SlotState
from promptgroup_router.rings.aliases import Aliases, settle
from promptgroup_router.rings.names import NameKeepers

SYSTEM = "You are the support assistant of Example Ltd."


def slot(
    index: int, state: SlotState = SlotState.READY, address: str = "", incarnation: str = "a", ranks: int = 1
) -> Slot:
    """A slot; its address is made of its number unless given."""
    return Slot(index, state, address or f"10.0.0.{index + 1}:8000", f"pod-{index}", incarnation, ranks=ranks)


def revision(
    system: str = SYSTEM,
    slots: int | tuple[Slot, ...] = 3,
    *,
    tools: str = "",
    messages: Sequence[tuple[str, str]] = (),
    known: bool = True,
    **fields: Any,
) -> Revision:
    """A revision of a system text; `known` is whether the router has the text."""
    canonical = canonical_messages(messages)
    values: dict[str, Any] = {
        "fingerprint": hash_prefix(tools, system.encode(), canonical),
        "system_bytes": len(system.encode()),
        "tools": tools != "",
        "messages": len(messages),
        "weight": 100,
        "slots": tuple(slot(index) for index in range(slots)) if isinstance(slots, int) else slots,
        "prompt": Prompt(system, tools, canonical) if known else None,
    }
    return Revision(**(values | fields))


def group(name: str = "support", *revisions: Revision, **fields: Any) -> Group:
    """A group; one revision unless given."""
    values: dict[str, Any] = {
        "namespace": "chat",
        "model": "llama",
        "created": "2026-11-03T11:00:00Z",
        "revisions": revisions or (revision(),),
    }
    return Group(name=name, **(values | fields))


def table(*groups: Group, version: str = "v1") -> RoutingTable:
    """A table; one group unless given."""
    return RoutingTable(groups or (group(),), version)


def settled(groups: Sequence[Group]) -> Aliases:
    """What the aliases of the groups stand for."""
    return settle(groups, NameKeepers(groups))
