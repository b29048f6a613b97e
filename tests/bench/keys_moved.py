"""Which keys change their home when a ring changes: a million keys, counted.

    python tests/bench/keys_moved.py [--keys 1000000]

Columns: share of keys that moved, the same times (n + 1) for a slot more, and whether all of them went to the new slot
(or came from the slot that left). The last rows are a rolling update, whose pods all change in their slots, and what
the router's metric `keys_moved_ratio` predicts from 1,024 keys.
"""

import argparse
from collections.abc import Iterator

import xxhash
from rich.console import Console
from rich.table import Table

from promptgroup_contract import table
from promptgroup_router.base.steps import at_once
from promptgroup_router.rings.building import build_index
from promptgroup_router.rings.remap import remap_steps
from promptgroup_router.rings.ring import Ring

SIZES = (1, 2, 4, 8, 16)
LIMIT = 1.02


def keys(count: int) -> Iterator[int]:
    return (xxhash.xxh3_64_intdigest(number.to_bytes(8, "little"), seed=5) for number in range(count))


def grown(slots: int, count: int) -> tuple[float, bool]:
    """Share of the keys that one slot more moves, and whether all of these went there."""
    before, after = Ring(range(slots)), Ring(range(slots + 1))
    changed, elsewhere = 0, 0
    for key in keys(count):
        home = after.home(key)
        if home != before.home(key):
            changed += 1
            elsewhere += home != slots
    return changed / count, elsewhere == 0


def predicted(slots: int, lives: tuple[int, int], after: int) -> float:
    """What the router says of a change of its table."""
    views = []
    for size, life in zip((slots, after), lives, strict=True):
        held = tuple(
            table.Slot(index, table.SlotState.READY, "e:1", f"pod-{life}-{index}", str(life)) for index in range(size)
        )
        revision = table.Revision("f" * 32, 100, tools=False, weight=1, slots=held)
        views.append(build_index(table.RoutingTable((table.Group("n", "g", "m", "", (revision,)),))))
    return at_once(remap_steps(*views))["n/g"]


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.partition("\n")[0])
    parser.add_argument("--keys", type=int, default=1_000_000, help="(default: %(default)s)")
    given = parser.parse_args()
    shown = Table(title=f"{given.keys:,} keys", title_justify="left")
    for column in ("change", "moved", "x (n + 1)", "limit", "all to the new slot", "predicted"):
        shown.add_column(column, justify="left" if column == "change" else "right")
    missed = 0
    for slots in SIZES:
        share, only = grown(slots, given.keys)
        missed += share * (slots + 1) > LIMIT or not only
        guess = predicted(slots, (0, 0), slots + 1)
        shown.add_row(
            f"{slots} -> {slots + 1} slots", f"{share:.4f}", f"{share * (slots + 1):.4f}", str(LIMIT),
            "yes" if only else "NO", f"{guess:.3f}",
        )  # fmt: skip
    # a home is a slot, whichever pod holds it: the ring of a rolling update is the same ring
    rolled = predicted(8, (0, 1), 8)
    shown.add_row("rolling update of 8", f"{rolled:.4f}", "", "0", "", f"{rolled:.3f}")
    Console().print(shown)
    raise SystemExit(1 if missed or rolled else 0)


if __name__ == "__main__":
    main()
