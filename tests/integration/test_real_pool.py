"""Two real vLLM engines on CPU with a real KV pool, LMCache's multi-process server, through all that happens to them.

Skipped where VLLM_POOL names no folder with pool-venv/ (vLLM and LMCache), and tiny/ (a model's config and tokenizer).
The tests run in this order on one cluster; the last one ends what those before it used.
"""

import json
import logging
import math
import random
import re
import subprocess
import sys
import time
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

import pytest

from promptgroup_contract import names
from promptgroup_local import lab
from promptgroup_local.cluster.local import LocalCluster
from promptgroup_local.kubectl import Kubectl, wait_for
from promptgroup_local.real.engine import MODEL, REPLICAS
from promptgroup_local.real.vllm import VLLM
from promptgroup_operator.engines.engine import EngineClient
from promptgroup_operator.load.engine_history import EngineHistory
from promptgroup_operator.plan.status import HIT_RATE_STEP
from promptgroup_operator.world.snapshot import ContainerId, Reading
from promptgroup_research.simulator.recorded import Asked, Recording, Sizes
from support import operators
from support.realengines import named
from support.realpools import (
    CHUNK,
    MEMORY,
    POOLED,
    START_SECONDS,
    Answer,
    Asking,
    Pool,
    Store,
    ask,
    copied,
    forget,
    go_on,
    running,
    sent,
)
from support.redisserver import real as with_store

logger = logging.getLogger(__name__)

FOLDER = named("VLLM_POOL")
pytestmark = [
    pytest.mark.real,
    pytest.mark.integration,
    pytest.mark.skipif(not FOLDER, reason="VLLM_POOL names no folder with a real vLLM and LMCache"),
]

GROUP = "pooled"
BLOCKS = 4096
"""Blocks of 32 tokens of an engine's own cache, so that a test can fill it."""
TOUCH_SECONDS = 20
TOLD_SECONDS = 30.0
"""Longest time until what happened is told."""
SESSIONS, TURNS = 44, 5
NOTED = ("assistant", "Noted.")
RECORDING = Path(__file__).parents[2] / ".cache" / "real_pair.jsonl"
POOL_TOKENS = 500_000
"""Of this model, in the pool's memory."""
QUESTIONS = ["the parser", "the cache", "the build", "the tests", "the release", "the index"]


@dataclass(frozen=True)
class Pooled:
    """A cluster with the operator, a router and a group of engines whose pool is there."""

    local: LocalCluster
    kubectl: Kubectl
    pool: Pool

    @property
    def pods(self) -> list[dict[str, Any]]:
        return lab.engine_pods(self.kubectl, GROUP)

    @property
    def engines(self) -> list[str]:
        return [lab.engine_url(pod) for pod in self.pods]

    @property
    def router(self) -> str:
        return lab.router_url(self.kubectl)

    def applied(self, replicas: int, *, pool: bool = True) -> None:
        more = {"cache": {"pool": self.pool.spec}} if pool else {}
        args = [f"--num-gpu-blocks-override={BLOCKS}"]
        self.kubectl.apply(POOLED.group(GROUP, args, replicas=replicas, **more))

    def told_within(self, what: str, look: Callable[[], Any]) -> float:
        """Seconds until it is told."""
        began = time.monotonic()
        wait_for(look, what, lambda: [gate(pod) for pod in self.pods])
        taken = time.monotonic() - began
        logger.info("%s: told after %.1f s", what, taken)
        assert taken < TOLD_SECONDS
        return taken


@pytest.fixture(scope="module")
def pooled(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Pooled]:
    folder = Path(FOLDER).resolve()
    with (
        running(folder) as pool,
        LocalCluster(tmp_path_factory.mktemp("pooled"), images=POOLED.images(folder)) as local,
    ):
        kubectl = local.kubectl(GROUP)
        lab.install_operator(kubectl)
        lab.set_operator(kubectl, refresh_seconds=TOUCH_SECONDS)
        kubectl.make_namespace(GROUP)
        lab.install_router(kubectl)
        it = Pooled(local, kubectl, pool)
        it.applied(1)
        kubectl.wait_warm(GROUP, "1/1", START_SECONDS)
        logger.info("the first replica: %s; warm after %.0f s", gate(it.pods[0])["message"], warmed_in(it.pods[0]))
        yield it


def gate(pod: dict[str, Any]) -> dict[str, Any]:
    """The condition of a pod that says what was proven of it."""
    found: dict[str, Any] = next(
        (each for each in pod["status"]["conditions"] if each["type"] == names.CONDITION_PREFIX_WARM), {}
    )
    return found


def warmed_in(pod: dict[str, Any]) -> float:
    """Seconds from the readiness of its containers to its proof, as the pod has them: to the second."""
    at = {each["type"]: each.get("lastTransitionTime", "") for each in pod["status"]["conditions"]}
    began, proven = (datetime.fromisoformat(at[each]) for each in ("ContainersReady", names.CONDITION_PREFIX_WARM))
    return (proven - began).total_seconds()


def name(pod: dict[str, Any]) -> str:
    found: str = pod["metadata"]["name"]
    return found


def is_true(pod: dict[str, Any], kind: str) -> bool:
    return any((each["type"], each["status"]) == (kind, "True") for each in pod["status"].get("conditions", []))


def prefix_of(pod: dict[str, Any]) -> int:
    """Tokens of the declared prompt, in whole chunks: what a tier can hold of it."""
    found = re.search(r"of ([0-9]+) prefix tokens", gate(pod)["message"])
    assert found is not None, gate(pod)
    return int(found[1]) // CHUNK * CHUNK


def joined(it: Pooled) -> tuple[str, float]:
    """Have a second replica join under load; return its proof, and the seconds from its start to the proof.

    No request fails, and none that the new replica answers finds the declared prompt missing, in the pool's case not
    even in the engine's own memory.
    """
    (first,) = it.pods
    needed = prefix_of(first)

    def second() -> dict[str, Any] | None:
        return next((pod for pod in it.pods if pod["metadata"]["uid"] != first["metadata"]["uid"]), None)

    def new(kind: str) -> Callable[[], dict[str, Any] | None]:
        return lambda: pod if (pod := second()) is not None and is_true(pod, kind) else None

    with Asking(it.router, 2) as load:
        it.kubectl.scale("promptgroup", GROUP, REPLICAS)
        wait_for(new("ContainersReady"), "the new engine to serve", seconds=START_SECONDS)
        began = time.monotonic()
        pod = wait_for(new(names.CONDITION_PREFIX_WARM), "the new engine to be proven", seconds=START_SECONDS)
        seconds = time.monotonic() - began
        proof, brought = gate(pod)["message"], copied(lab.engine_url(pod))
        it.kubectl.wait_warm(GROUP, f"{REPLICAS}/{REPLICAS}", START_SECONDS)

        def answered() -> bool | None:
            return len({each.served_by for each in load.answers}) == REPLICAS or None

        wait_for(answered, "an answer of the new replica", seconds=300)
        load.more(20)
    slots = {each.served_by for each in load.answers}
    theirs = {slot: sum(each.served_by == slot for each in load.answers) for slot in slots}
    cold = [each for each in load.answers if each.cached < needed]
    logger.info(
        "joined: %s; %.1f s; answers %s, cold %d, failed %d", proof, seconds, theirs, len(cold), len(load.failed)
    )
    assert load.failed == []
    assert cold == []
    # each question is a new one, so that only the declared prompt could have come from the pool
    assert copied(lab.engine_url(pod)) == brought
    return proof, seconds


def test_a_new_replica_copies_from_the_pool_and_meets_no_cold_prompt(pooled: Pooled) -> None:
    (first,) = pooled.pods
    # nobody had computed it before: the proof names no tier, and the engine copied nothing
    assert "KV tier" not in gate(first)["message"]
    assert copied(lab.engine_url(first)) == 0
    proof, _ = joined(pooled)
    assert "copied from a KV tier" in proof


def readings(client: EngineClient, engines: Sequence[str]) -> list[Reading]:
    return [client.read(each.removeprefix("http://"), VLLM.dialect) for each in engines]


def counted(pooled: Pooled, asked: Callable[[], list[Answer]]) -> tuple[int, int, int]:
    """Prompt tokens, found ones and copied ones of what is asked; all counters say the same of it, to the token.

    The engines count the operator's requests as well, so that there are none.
    """
    engines, client, history = pooled.engines, EngineClient(), EngineHistory()
    try:
        before, sources = readings(client, engines), sum(map(copied, engines))
        for engine, reading in zip(engines, before, strict=True):
            history.add(ContainerId(engine), reading, datetime.now(UTC))
        answers = asked()
        after = readings(client, engines)
        for engine, reading in zip(engines, after, strict=True):
            history.add(ContainerId(engine), reading, datetime.now(UTC))
        brought = int(sum(map(copied, engines)) - sources)
    finally:
        client.close()
    prompt, cached = sum(each.prompt for each in answers), sum(each.cached for each in answers)
    assert sum(b.queries - a.queries for a, b in zip(before, after, strict=True)) == prompt
    assert sum(b.hits - a.hits for a, b in zip(before, after, strict=True)) == cached
    assert sum(b.tiered - a.tiered for a, b in zip(before, after, strict=True)) == brought
    assert brought > 0
    found = history.found_tokens(map(ContainerId, engines))
    assert found.rates == (cached / prompt, brought / prompt)
    assert found.rates_by_source == {"pool": pytest.approx(brought / prompt)}  # LMCache's connector does not say more
    logger.info("of %d prompt tokens %d were found, %d of them in the pool", prompt, cached, brought)
    return prompt, cached, brought


RATES = ("promptgroup_hit_ratio", "promptgroup_tier_hit_ratio")
FIGURES = ("hitRate", "gpuHitRate", "tierHitRate")


def told_by_operators(pooled: Pooled, series: str) -> list[float]:
    """Values of a series about the group; the operators that do not lead have none."""
    of = f'name="{GROUP}"'
    pages = operators.metrics(pooled.kubectl.within(operators.SYSTEM)).values()
    lines = [line for page in pages for line in page.splitlines() if line.startswith(f"{series}{{") and of in line]
    return [float(line.rsplit(" ", 1)[1]) for line in lines]


@pytest.fixture
def newly_operated(pooled: Pooled) -> Iterator[None]:
    """Operators that have read each engine, know of no load before, and ask no engine as long as nothing presses.

    The status has no figures of before.
    """
    lab.set_operator(pooled.kubectl, refresh_seconds=3600)
    operators.set_operators(pooled.local, 0)
    empty = {"hitRate": None, "cache": dict.fromkeys(FIGURES[1:])}
    patch = json.dumps({"status": empty})
    pooled.kubectl.run("patch", "promptgroup", GROUP, "--subresource=status", "--type=merge", f"--patch={patch}")
    operators.set_operators(pooled.local, operators.REPLICAS)
    replicas = len(pooled.pods)
    wait_for(
        lambda: len(told_by_operators(pooled, "promptgroup_replica_tier_tokens_total")) == replicas or None,
        "each engine to be read",
    )
    yield
    lab.set_operator(pooled.kubectl, refresh_seconds=TOUCH_SECONDS)


@pytest.fixture
def nobody_operates(pooled: Pooled) -> Iterator[None]:
    """A cache that fills up would have the operator look at its prefix."""
    operators.set_operators(pooled.local, 0)
    yield
    operators.set_operators(pooled.local, operators.REPLICAS)


def figures(pooled: Pooled) -> list[int] | None:
    """Percentages of the status, once it has all of them."""
    status = (pooled.kubectl.get("promptgroup", GROUP) or {})["status"]
    found = [{**status["cache"], "hitRate": status.get("hitRate")}.get(each) for each in FIGURES]
    return [int(each[:-1]) for each in found] if all(found) else None


def test_tokens_of_tiers_are_exact_after_resets(pooled: Pooled, newly_operated: None) -> None:
    """Readings, and the shares made of them, are what clients were told and what vLLM counts by source.

    So are the operator's metrics, exactly, and the status, which does not follow each point.
    """

    def asked() -> list[Answer]:
        found = []
        for turn in range(2):
            for engine in pooled.engines:
                forget(engine)
                found += [ask(engine, f"Explain {question} {turn} in one sentence.") for question in QUESTIONS]
        return found

    prompt, cached, brought = counted(pooled, asked)
    assert brought % CHUNK == 0
    truth = [cached / prompt, brought / prompt]

    def told() -> bool | None:
        found = [told_by_operators(pooled, each) for each in RATES]
        return found == [[pytest.approx(each, abs=1e-9)] for each in truth] or None

    wait_for(told, f"the operator to tell {truth}", lambda: [told_by_operators(pooled, each) for each in RATES])
    expected = [100 * truth[0], 100 * (truth[0] - truth[1]), 100 * truth[1]]

    def written() -> list[int] | None:
        found = figures(pooled)
        near = found and all(abs(each - wanted) < HIT_RATE_STEP for each, wanted in zip(found, expected, strict=True))
        return found if near else None

    found = wait_for(written, f"the status to say {expected}", lambda: figures(pooled))

    def tiers() -> list[dict[str, str]]:
        return [dict(each) for each in pooled.kubectl.get("promptgroup", GROUP)["status"]["cache"]["tiers"]]

    def sized() -> dict[str, str] | None:
        return next((each for each in tiers() if each["tier"] == "Pool" and each.get("capacity")), None)

    pool = wait_for(sized, "the pool's capacity", tiers)
    logger.info("the pool: %s", pool)
    assert float(pool["capacity"].removesuffix("Gi")) == pytest.approx(MEMORY, abs=0.1)
    assert abs(int(pool["hitRate"][:-1]) - expected[2]) < HIT_RATE_STEP
    logger.info("by the counters %s; status %s", [f"{each:.2f}" for each in expected], found)


def long_question(number: int) -> str:
    return f"Session {number}. " + " ".join(f"item {number * 7 + each} of it;" for each in range(400))


def test_tokens_of_tiers_are_exact_under_evictions(pooled: Pooled, nobody_operates: None) -> None:
    """One engine is asked by more sessions than its own cache holds, twice in turn: the pool has what left it."""
    engine, prefix = pooled.engines[0], prefix_of(pooled.pods[0])
    one = ask(engine, long_question(0))
    count = math.ceil(1.2 * BLOCKS * 32 / (one.prompt - prefix))

    def asked() -> list[Answer]:
        return [ask(engine, long_question(1 + number)) for number in range(count)]

    again: list[Answer] = []

    def asked_again() -> list[Answer]:
        again.extend(asked())
        return again

    asked()
    prompt, cached, brought = counted(pooled, asked_again)
    logger.info("%d sessions, asked again: %d of %d tokens found, %d copied", count, cached, prompt, brought)
    # the declared prompt stays, as every request takes it; histories leave, and come back from the pool
    assert [each for each in again if each.cached < each.prompt - 2 * CHUNK] == []
    assert brought > 0.3 * prompt


def test_simulated_engines_find_what_real_ones_found(pooled: Pooled, nobody_operates: None) -> None:
    """Turns of sessions come to either engine by chance, one after the other; caches are smaller than all of them.

    The recording is left in `.cache`; lab/tests/simulator/real_pair.jsonl is one.
    """
    engines, draw = pooled.engines, random.Random(7)
    prefix = int(re.findall(r"of ([0-9]+) prefix tokens", gate(pooled.pods[0])["message"])[0])
    for engine in engines:
        forget(engine)
        ask(engine, "Are you there?")
    histories: list[list[tuple[str, int]]] = [[] for _ in range(SESSIONS)]
    requests = []
    while open_ := [number for number, turns in enumerate(histories) if len(turns) < TURNS]:
        number, at = draw.choice(open_), draw.randrange(len(engines))
        history = histories[number]
        said = f"{number}.{len(history)}: " + " ".join(f"item {draw.randrange(1000)} of it;" for _ in range(115))
        talk = [{"role": role, "content": text} for old, _ in history for role, text in (("user", old), NOTED)]
        before, answer = copied(engines[at]), go_on(engines[at], [*talk, {"role": "user", "content": said}])
        sizes = (prefix, *(size for _, size in history))
        history.append((said, answer.prompt - sum(sizes)))
        nodes = (0, *(1 + number * TURNS + turn for turn in range(len(history))))
        brought = int(copied(engines[at]) - before)
        requests.append(Asked(at, nodes, (*sizes, history[-1][1]), answer.cached, brought))
    found = Recording(Sizes(BLOCKS * 32, 32, POOL_TOKENS, CHUNK, prefix), requests)
    found.write(RECORDING)
    seen, simulated = found.seen(), found.simulated()
    logger.info("%d tokens: %s seen, %s simulated", found.tokens, seen, simulated)
    assert seen.tier > 0.05
    assert simulated.engine == pytest.approx(seen.engine, abs=0.02)
    assert simulated.tier == pytest.approx(seen.tier, abs=0.02)


def test_a_reset_under_load_fails_nothing_and_makes_nobody_compute_the_prompt(pooled: Pooled) -> None:
    needed = prefix_of(pooled.pods[0])
    with Asking(pooled.router, 1) as load:
        for engine in pooled.engines:
            forget(engine)
            load.more(6)
    logger.info("%d answers, least cached %d", len(load.answers), min(each.cached for each in load.answers))
    assert load.failed == []
    assert min(each.cached for each in load.answers) >= needed


def test_a_prefix_that_only_the_pool_had_is_not_told_as_found_in_the_gpu(pooled: Pooled) -> None:
    before = {name(pod): copied(lab.engine_url(pod)) for pod in pooled.pods}
    for engine in pooled.engines:
        forget(engine)

    def told() -> bool | None:
        evicted = all(gate(pod)["reason"] == "PrefixEvicted" for pod in pooled.pods)
        return True if evicted and all(copied(lab.engine_url(pod)) > before[name(pod)] for pod in pooled.pods) else None

    pooled.told_within("a reset of both engines", told)
    for pod in pooled.pods:
        found = gate(pod)
        assert found["status"] == "True"
        assert found["message"].startswith("0 of "), found
        assert "copied from a KV tier" in found["message"], found
        brought = copied(lab.engine_url(pod)) - before[name(pod)]
        assert f"({brought:.0f} tokens)" in found["message"], found


def test_an_engine_whose_cache_strangers_filled_has_the_prefix_in_its_own_memory(pooled: Pooled) -> None:
    """The operator looks after the prefix meanwhile, so that it is the last to be evicted."""
    pod = pooled.pods[0]
    engine = lab.engine_url(pod)
    client = EngineClient()
    try:
        size = 0
        for number in range(1000):
            text = " ".join(f"{number}.{each} flows by;" for each in range(600))
            body = {"model": MODEL, "messages": [{"role": "user", "content": text}], "max_tokens": 1}
            size += sent(engine, body).prompt
            if size > 1.2 * BLOCKS * 32:
                break
        (quiet,) = readings(client, [engine])

        def looked_at() -> bool | None:
            return readings(client, [engine])[0].requests > quiet.requests or None

        pooled.told_within("strangers that filled a cache", looked_at)
    finally:
        client.close()
    before = copied(engine)
    answer = ask(engine, "Is it there?")
    found = gate(pooled.pods[0])
    logger.info("%d tokens of strangers; then: %s: %s", size, found["reason"], found["message"])
    assert found["status"] == "True"
    assert copied(engine) == before
    assert answer.cached >= prefix_of(pod)


def test_probe_measures_prefill_and_the_pool(pooled: Pooled) -> None:
    here, there = (each.removeprefix("http://") for each in pooled.engines)
    for how in (["--copy-to", there], ["--reset"]):
        command = ["probe", here, "--model", MODEL, *how, "--tokens", "512,1024,2048", "--repeat", "3", "-o", "json"]
        done = subprocess.run(
            [sys.executable, "-m", "promptgroup_cli", *command], check=False, capture_output=True, text=True
        )
        logger.info("promptgroup %s: %s%s", " ".join(command), done.stdout, done.stderr)
        if done.returncode:  # copies of this small model take next to no time, which the rest of the machine covers
            assert "the times of the copies do not grow" in done.stderr
            continue
        found = json.loads(done.stdout)
        assert found["kvTokens"] == BLOCKS * 32
        assert found["prefillTokensPerSecond"] > 0
        assert found["tier"]["tokensPerSecond"] > 0


def test_an_engine_that_dies_under_load_fails_no_request_and_comes_back_by_the_pool(pooled: Pooled) -> None:
    pod = pooled.pods[1]
    here, needed = name(pod), prefix_of(pooled.pods[0])

    def lost() -> bool | None:
        return warm_of(pooled.kubectl) == f"1/{REPLICAS}" or None

    with Asking(pooled.router, 2) as load:
        pooled.local.kill_pod(GROUP, here)
        pooled.told_within("an engine that died", lost)
        pooled.kubectl.wait_warm(GROUP, f"{REPLICAS}/{REPLICAS}", START_SECONDS)
        again = pooled.kubectl.get("pod", here) or {}
        proof, brought = gate(again)["message"], copied(lab.engine_url(again))
        load.more(20)
    (status,) = again["status"]["containerStatuses"]
    logger.info("%d answers, %d failed; %s", len(load.answers), len(load.failed), proof)
    assert status["restartCount"] == 1
    assert "copied from a KV tier" in proof
    assert load.failed == []
    assert [each for each in load.answers if each.cached < needed] == []
    assert copied(lab.engine_url(again)) == brought


def test_a_pool_that_dies_under_load_fails_no_request(pooled: Pooled) -> None:
    kubectl, pool = pooled.kubectl, pooled.pool
    before = restarts(pooled)
    kubectl.wait_condition(GROUP, "CachePoolReady", "True", "PoolReady")
    with Asking(pooled.router, 3) as load:
        pool.kill()
        pooled.told_within("a pool that died", lambda: pool_is(kubectl, "PoolUnreachable"))
        load.more(6)
        pool.start()
        pooled.told_within("a pool that is back", lambda: pool_is(kubectl, "PoolReady"))
        load.more(6)
    logger.info("%d answers, %d failed", len(load.answers), len(load.failed))
    assert load.failed == []
    assert restarts(pooled) == before


def pool_is(kubectl: Kubectl, reason: str) -> bool | None:
    return kubectl.condition(GROUP, "CachePoolReady").get("reason") == reason or None


def warm_of(kubectl: Kubectl) -> str:
    """Warm replicas of all, as the status has them."""
    found: str = (kubectl.get("promptgroup", GROUP) or {})["status"].get("warm", "")
    return found


def restarts(pooled: Pooled) -> list[int]:
    return [each["restartCount"] for pod in pooled.pods for each in pod["status"]["containerStatuses"]]


@pytest.fixture
def store(pooled: Pooled, tmp_path: Path) -> Iterator[Store]:
    """A Redis or Valkey behind the pool, which is started with it."""
    store = Store(tmp_path)
    store.start()
    pooled.pool.kill()
    pooled.pool.start(store)
    yield store
    store.kill()


def stored(pooled: Pooled, name: str) -> str:
    """Text of which the store behind the pool has all chunks."""
    engine, prefix = pooled.engines[0], prefix_of(pooled.pods[0])
    text = f"{name}: {long_question(1000)}"

    def kept() -> bool | None:
        forget(engine)  # an engine takes a while to find its pool again
        return pooled.pool.stored() >= (ask(engine, text).prompt - prefix) // CHUNK or None

    wait_for(kept, "the store to have it all", seconds=300)
    return text


@with_store
def test_what_is_behind_the_pool_outlives_pool_and_engine(pooled: Pooled, store: Store) -> None:
    kubectl, pod, prefix = pooled.kubectl, pooled.pods[0], prefix_of(pooled.pods[0])
    text, warm = stored(pooled, "read back"), warm_of(kubectl)
    pooled.pool.kill()
    pooled.local.kill_pod(GROUP, name(pod))
    wait_for(lambda: True if warm_of(kubectl) != warm else None, "the death of the engine to be told")
    pooled.pool.start(store)  # its memory is empty
    kubectl.wait_warm(GROUP, warm, START_SECONDS)
    proof, engine = gate(pooled.pods[0])["message"], pooled.engines[0]
    before, found = copied(engine), ask(engine, text)
    brought = copied(engine) - before
    logger.info("out of the store: %s; then %.0f of %d tokens", proof, brought, found.prompt)
    assert "copied from a KV tier" in proof
    assert found.cached == found.prompt // CHUNK * CHUNK
    assert brought > found.cached - prefix - CHUNK  # the engine itself has the declared prompt to the block


@with_store
def test_a_store_that_is_lost_behind_the_pool_is_told(pooled: Pooled, store: Store) -> None:
    kubectl, pool = pooled.kubectl, pooled.pool
    stored(pooled, "lost")
    with Asking(pooled.router, 2) as load:
        store.kill()
        store.start()
        began = time.monotonic()
        wait_for(lambda: pool_is(kubectl, "PoolStoresNothing"), "the loss to be told", seconds=300)
        logger.info("a store that was lost: told after %.1f s", time.monotonic() - began)
        pool.kill()
        pool.start(store)
        wait_for(lambda: pool_is(kubectl, "PoolReady"), "the cure to be told", seconds=300)
        load.more(6)
    logger.info("%d answers, %d failed", len(load.answers), len(load.failed))
    assert load.failed == []


def test_a_new_replica_without_a_pool_computes_the_prompt(pooled: Pooled) -> None:
    """What the first test has, without a pool."""
    pooled.kubectl.delete("promptgroup", GROUP)
    wait_for(lambda: None if pooled.kubectl.list("pods", f"{names.LABEL_GROUP}={GROUP}") else True, "the pods to go")
    pooled.pool.kill()
    pooled.applied(1, pool=False)
    pooled.kubectl.wait_warm(GROUP, "1/1", START_SECONDS)
    proof, _ = joined(pooled)
    assert "KV tier" not in proof
