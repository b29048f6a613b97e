"""Selects the part of a table that is served if the router fails to install some of its groups: all other groups.

Decoding rejects invalid groups. If a group passes it and the router still fails to install the group, that is a fault
of the router, and must not affect the teams whose groups are in the same table.
"""

from collections.abc import Generator, Mapping
from dataclasses import replace

from promptgroup_contract.table import Group, RoutingTable
from promptgroup_router.rings.age import full_name
from promptgroup_router.routing.state import RouterState


def sound_part(
    table: RoutingTable, last: RoutingTable
) -> Generator[None, None, tuple[RoutingTable, Mapping[str, Exception]]]:
    """Return a table without the groups that cannot be installed, and their errors by name; each step tries one group.

    Args:
        table: the table.
        last: the table in use. If the new value of a group cannot be installed, the group's value in this table is
            used; unchanged groups are not tried.
    """
    last_groups = {full_name(group): group for group in last.groups}
    groups, faults = list[Group](), dict[str, Exception]()
    trial = RouterState()
    for group in table.groups:
        label = full_name(group)
        if last_groups.get(label) == group:
            groups.append(group)
            continue
        try:
            trial.install(RoutingTable((group,)), "trial", 0.0)
            groups.append(group)
        except Exception as error:  # noqa: BLE001 # each error is reported
            faults[label] = error
            trial = RouterState()  # the trial may have got half of it
            if label in last_groups:
                groups.append(last_groups[label])
        yield
    return replace(table, groups=tuple(groups)), faults
