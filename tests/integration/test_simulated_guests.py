"""The simulator's 64 prompts on 8 replicas as manifests: as much is found in cache as the simulator says.

Engines are stand-ins with the simulator's KV capacity. Both serve the same sessions at the same rate, which is lower
than that of the table in docs/research/policy/articles.md, so that ten Python processes on two cores can serve it.
"""

import asyncio
import logging
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace

import pytest
import urllib3
import uvloop

from bench.peers import prose
from bench.peers.drive import NAME, Outcome, play
from promptgroup_local import lab
from promptgroup_local.cluster.local import LocalCluster
from promptgroup_local.kubectl import Kubectl, wait_for
from promptgroup_research.experiments.catalogue import POLICIES
from promptgroup_research.experiments.runs import DRAIN
from promptgroup_research.simulator.engine import Model
from promptgroup_research.simulator.measure import hit
from promptgroup_research.simulator.turns import Session
from promptgroup_research.simulator.workloads import chat
from promptgroup_research.simulator.world import World
from support.groups import group, guest
from support.life import cold
from support.operators import REPLICAS, set_operators
from support.routed import routed, routers_know

pytestmark = [pytest.mark.integration, pytest.mark.slow]

logger = logging.getLogger(__name__)

HOST, GUESTS, ENGINES = "pool", 64, 8
RATE, WARM_UP, LENGTH = 5.0, 40.0, 110.0
"""Requests a second; seconds before requests are measured, and the end of the load."""
SEED = 1
TOLERANCE = 0.03
MODEL = Model()
NAMES = [f"prompt-{number:02}" for number in range(GUESTS)]


def sessions() -> list[Session]:
    """The sessions of the simulator's case, in the order of their beginnings."""
    drawn = chat(RATE, LENGTH, SEED, groups=GUESTS, shared=0.8, prompt=(3000, 3000), mean_turns=5.0)
    return sorted(drawn, key=lambda session: session.began)


def simulated(policy: str) -> float:
    """Return the share of prompt tokens that the simulator finds in cache after the warm-up."""
    world = World(POLICIES[policy](SEED), sessions(), ENGINES, replace(MODEL))
    world.run(LENGTH + DRAIN)
    return hit(turn for turn in world.turns if WARM_UP <= turn.arrived < LENGTH)


def prompts() -> dict[str, str]:
    """Guest → its prompt; those that no session of the load has get one of the same length."""
    found = {session.group: prose.system(session, SEED) for session in sessions() if session.group >= 0}
    length = 3000 - prose.OPENING_TOKENS
    return {
        name: found.get(number) or prose.OPENING + prose.words(length, SEED, -number)
        for number, name in enumerate(NAMES)
    }


@dataclass(frozen=True, slots=True)
class Played:
    """What clients and engines reported of the load."""

    outcomes: Sequence[Outcome]
    prompt: float
    """Tokens of clients' prompts after the warm-up, as engines reported them in their answers."""
    cached: float
    """Those that were cached. The operator's own requests are on the engines' counters, and not here."""


def tokens(admin: str) -> tuple[float, float]:
    """Return the prompt tokens of all answers so far and those that were cached, as the router counts them."""
    page = urllib3.request("GET", f"{admin}/metrics", timeout=30).data.decode()
    lines = [line.rpartition(" ") for line in page.splitlines()]
    sums = {
        name: sum(float(value) for series, _, value in lines if series.startswith(f"promptgroup_router_{name}_total{{"))
        for name in ("prompt_tokens", "cached_tokens")
    }
    return sums["prompt_tokens"], sums["cached_tokens"]


async def played(url: str, admin: str) -> Played:
    """Send the load."""
    load = asyncio.ensure_future(play(sessions(), url, SEED, header="", until=LENGTH))
    await asyncio.sleep(WARM_UP)
    before = await asyncio.to_thread(tokens, admin)
    outcomes = await load
    prompt, cached = (now - then for now, then in zip(tokens(admin), before, strict=True))
    return Played(outcomes, prompt, cached)


@pytest.fixture(scope="module")
def kube(cluster: LocalCluster) -> Iterator[Kubectl]:
    with routed(cluster, "simulated") as kube:
        set_operators(cluster, REPLICAS)
        blocks = MODEL.kv_tokens // MODEL.block
        args = (f"--block-size={MODEL.block}", f"--num-gpu-blocks-override={blocks}", "--max-model-len=65536")
        host = group(HOST, replicas=ENGINES, args=args)
        del host["spec"]["prompt"]
        host["spec"]["model"] = NAME
        kube.apply(host)
        kube.wait_warm(HOST, f"{ENGINES}/{ENGINES}")
        kube.apply(*(guest(name, prompt) for name, prompt in prompts().items()))

        def cold() -> list[str]:
            status = {item["metadata"]["name"]: item.get("status", {}) for item in kube.list("promptgroups")}
            return [name for name in NAMES if status.get(name, {}).get("warm") != f"{ENGINES}/{ENGINES}"]

        wait_for(lambda: True if not cold() else None, "guests to be warm", lambda: cold()[:5], seconds=300)
        routers_know(kube, HOST, *NAMES)
        yield kube


def test_manifests_find_as_much_in_cache_as_the_simulator(kube: Kubectl, cluster: LocalCluster) -> None:
    seen = uvloop.run(played(lab.router_url(kube), lab.router_admin_url(kube)))
    failed = [outcome.error for outcome in seen.outcomes if outcome.error]
    ours, robin = simulated("promptgroup"), simulated("round-robin")
    rate, met_cold = seen.cached / seen.prompt, cold(cluster.folder, "simulated", HOST)
    logger.info(
        "%d requests, %d failed, %d met a cold prefix; hit rate %.1f %%; simulated %.1f %%, round robin %.1f %%",
        len(seen.outcomes), len(failed), met_cold, 100 * rate, 100 * ours, 100 * robin,
    )  # fmt: skip
    assert failed == []
    assert met_cold == 0
    assert rate > ours - TOLERANCE
    assert ours > robin + TOLERANCE
