"""Compares a table with the one in use: groups that are equal stay the same objects. Does no I/O and reads no clock.

All that is made of a table is made anew where a group is another object (`rings.building`).
"""

from collections.abc import Generator

from promptgroup_contract.table import Group, RoutingTable
from promptgroup_router.rings.age import full_name


def unchanged_steps(table: RoutingTable, last: RoutingTable) -> Generator[None, None, RoutingTable]:
    """Return a table that has the groups of the last one where they are equal, compared one in each step.

    It is the last one itself where nothing differs.
    """
    known = {full_name(group): group for group in last.groups}
    groups: list[Group] = []
    for group in table.groups:
        had = known.get(full_name(group))
        groups.append(had if had is not None and (had is group or had == group) else group)
        yield
    # groups that are the same objects are not compared again
    made = RoutingTable(tuple(groups), table.version)
    return last if made == last else made
