"""Decides what of a table is served where the router fails at some of its groups: all the others.

Decoding refuses what is known to be of no use. What it lets through, and the router fails at, is a fault of the router.
The teams whose groups stand in the same table must not feel it.
"""

from collections.abc import Generator, Mapping
from dataclasses import replace

from promptgroup_contract.table import Group, RoutingTable
from promptgroup_router.rings.age import full_name
from promptgroup_router.routing.state import RouterState


def sound_part(
    table: RoutingTable, last: RoutingTable
) -> Generator[None, None, tuple[RoutingTable, Mapping[str, Exception]]]:
    """Return a table without the groups that cannot be installed, each tried alone in a step, and their errors by name.

    Args:
        table: the table.
        last: the table in use. A group that stands there keeps that value where its new one cannot be installed, and is
            not tried where it has not changed.
    """
    kept = {full_name(group): group for group in last.groups}
    groups, faults = list[Group](), dict[str, Exception]()
    trial = RouterState()
    for group in table.groups:
        label = full_name(group)
        if kept.get(label) == group:
            groups.append(group)
            continue
        try:
            trial.install(RoutingTable((group,)), "trial", 0.0)
            groups.append(group)
        except Exception as error:  # noqa: BLE001 # whatever it is, it is told
            faults[label] = error
            trial = RouterState()  # the trial may have got half of it
            if label in kept:
                groups.append(kept[label])
        yield
    return replace(table, groups=tuple(groups)), faults
