"""An API server whose other namespace gets far more slots than a router serves, and changes them all the time.

python -m bench.attacks.api_server FOLDER HONEST-ENGINE OTHER-ENGINE      `go` and `stop` on its stdin, as others
"""

import asyncio
import sys
from dataclasses import replace
from pathlib import Path

import uvloop

from bench.attacks.hostile import Sent, obey
from promptgroup_contract.caller_rules import CallerLimits, CallerRules
from promptgroup_contract.table import Group, SlotState
from support.fakekube import FakeKube, fake_kube
from support.keys import BY_KEY
from support.tables import group, revision, slot

HOSTILE = "hostile"
SLOTS, ROUTES = 100_000, 25
CHANGES_A_SECOND = 2
"""PromptRoutes that are written anew in a second; each has 4,000 slots."""
LIMITED = CallerRules(named=(("team-b", CallerLimits(requests_per_minute=200)),))


def served(honest: str, other: str) -> list[Group]:
    """Return the groups of the namespace that is measured."""
    return [
        group("support", revision(slots=(slot(0, address=honest),)), access=BY_KEY, callers=LIMITED),
        group("other", revision("Other.", (slot(0, address=other),)), model="other", access=BY_KEY),
    ]


def hostile_route(number: int, change: int) -> Group:
    """Return a group of the hostile namespace; each change moves all its slots, and takes another one away."""
    slots = tuple(
        slot(
            at,
            SlotState.ABSENT if at == change else SlotState.READY,
            f"10.{number}.{at >> 8}.{at & 255}:{8000 + change % 1000}",
            f"pod-{change}",
        )
        for at in range(SLOTS // ROUTES)
    )
    return replace(group(f"g{number}", revision(f"Of group {number}.", slots)), namespace=HOSTILE)


async def rewrite(kube: FakeKube) -> None:
    """Write the hostile PromptRoutes one after the other, without end, and delete them then."""
    change = 0
    try:
        while True:
            kube.put(hostile_route(change % ROUTES, change))
            change += 1
            Sent.count += 1
            await asyncio.sleep(1 / CHANGES_A_SECOND if change > ROUTES else 0.05)
    finally:
        for number in range(min(change, ROUTES)):
            kube.delete(HOSTILE, f"g{number}")


async def main() -> None:
    folder, honest, other = Path(sys.argv[1]), *sys.argv[2:]
    async with fake_kube(folder) as kube:
        for known in served(honest, other):
            kube.put(known)
        sys.stdout.write(f"{kube.port}\n")
        sys.stdout.flush()
        await obey(lambda: rewrite(kube))


if __name__ == "__main__":
    uvloop.run(main())
