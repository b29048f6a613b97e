"""What choosing a replica costs: CPU of a pick and of all that a request is accounted with, by policy and replicas.

python tests/bench/policy_cost.py
"""

import argparse
import random
import time

from rich.console import Console
from rich.table import Table

from promptgroup_contract import table
from promptgroup_router.apis.usage import Usage
from promptgroup_router.placement.balancer import Balancer
from promptgroup_router.policy.demand import Demand
from promptgroup_router.policy.health import Health
from promptgroup_router.rings.building import build_index

REPLICAS = (4, 8, 16, 64, 256, 1000)
IN_FLIGHT = 8
"""Requests that a replica has at any time."""


def measure(policy: table.Policy, replicas: int, requests: int) -> tuple[float, float]:
    """Microseconds of CPU for a pick, and for a whole request with its first token and its end."""
    slots = tuple(
        # slots of one address would be one engine, with the load of all
        table.Slot(index, table.SlotState.READY, address=f"10.0.{index // 256}.{index % 256}:8000", incarnation="a")
        for index in range(replicas)
    )
    engine = table.Engine("one", kv_tokens=4_000_000, prefill_rate=10_000)
    revision = table.Revision("f" * 32, 8000, tools=False, weight=1, slots=slots, engine=engine)
    view = build_index(table.RoutingTable((table.Group("bench", "group", "model", "", (revision,), policy=policy),)))
    candidates = view.names["group"].revisions[0].candidates
    balancer = Balancer(Health())
    balancer.install(view, 0.0)
    draw = random.Random(1)
    demands = [
        Demand(draw.getrandbits(64), 7, prompt=3000, tier1=2000, history=2700, turn=5) for _ in range(50 * replicas)
    ]
    batch = IN_FLIGHT * replicas
    now, picking, settling = 0.0, 0, 0
    for _ in range(max(2, requests // batch)):
        batched = draw.sample(demands, batch)
        now += 1.0
        began = time.process_time_ns()
        picks = [balancer.pick(candidates, demand, now) for demand in batched]
        picked = time.process_time_ns()
        for pick in picks:
            balancer.placed.first_token(pick, now + 0.1)
        for pick in picks:
            balancer.placed.end(pick, Usage(3000, 2690, 150), now + 0.2)
        picking += picked - began
        settling += time.process_time_ns() - picked
        balancer.peers.export(now)
    count = max(2, requests // batch) * batch * 1000
    return picking / count, (picking + settling) / count


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.partition("\n")[0])
    parser.add_argument("--requests", type=int, default=20_000, help="per cell (default: %(default)s)")
    given = parser.parse_args()
    shown = Table(title="CPU a request, µs: the pick / with all accounting", title_justify="left")
    shown.add_column("policy")
    for replicas in REPLICAS:
        shown.add_column(f"{replicas} replicas", justify="right")
    for policy in table.Policy:
        cells = (measure(policy, replicas, given.requests) for replicas in REPLICAS)
        shown.add_row(policy.value, *(f"{pick:.1f} / {whole:.1f}" for pick, whole in cells))
    Console().print(shown)


if __name__ == "__main__":
    main()
