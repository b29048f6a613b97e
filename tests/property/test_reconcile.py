"""From any history the operator comes to the one state that the spec asks for, and harms nobody on the way."""

import os
import random
from datetime import UTC, datetime, timedelta

import pytest
from hypothesis import example, given
from hypothesis import strategies as st

from promptgroup_contract.encoding import decode_group
from promptgroup_contract.table import Engine, SlotState
from promptgroup_operator.plan import desired
from promptgroup_operator.rollout import annotations
from promptgroup_operator.world.samples import SlotUse
from support.clustermodel import KV_TOKENS, PREFILL_RATE, PREFIX_TOKENS, Model, target_of
from support.examples import examples

RETIRE_AFTER = timedelta(minutes=2)

HISTORIES = int(os.environ.get("HISTORIES", "150"))
"""Random histories to try, of 30 to 80 steps each: with HISTORIES=2000 and
`--hypothesis-profile=search` more than 10^5 steps that nobody tried before, in some minutes."""

SPEC = {
    "model": "llama",
    "prompt": {"system": "text a"},
    "engine": {"image": "engine:1"},
    "replicas": 2,
    "rollout": {"retireAfter": "2m"},
    "gateway": {},
}

MOST = 5
"""Most replicas of a history."""

REFERENCE = {"systemFrom": {"configMapKeyRef": {"name": "texts", "key": "system"}}}
"""Prompt d: it stands in a ConfigMap that comes and goes."""

WHICH = st.integers(0, 99)
WEIGHTED = {
    # how often of a hundred → action
    20: st.tuples(st.just("operate"), st.just(100)),
    10: st.tuples(st.just("operate"), st.sampled_from([1, 2, 3, 5])),
    14: st.tuples(st.just("kubelet"), WHICH),
    13: st.tuples(st.just("warmup"), WHICH, st.sampled_from(["proven"] * 5 + ["failed", "torn"])),
    12: st.tuples(st.just("control"), st.integers(0, 3)),
    11: st.tuples(st.just("request"), WHICH),
    9: st.tuples(st.just("time"), st.sampled_from([0.1, 1, 3, 60, 301])),
    6: st.tuples(st.just("surroundings")),
    5: st.tuples(st.just("prompt"), st.sampled_from("abcd")),
    4: st.tuples(st.just("replicas"), st.integers(0, MOST)),
    3: st.tuples(st.sampled_from(["kill", "restart"]), WHICH, st.booleans()),
    2: st.tuples(st.sampled_from(["crash", "routers", "reference"])),
    1: st.tuples(st.sampled_from(["answer", "delete", "image"]), WHICH),
    7: st.tuples(st.just("traffic"), st.sampled_from([0.0, 0.1, 0.3, 0.5, 0.9, 1.0]), st.sampled_from([0.0, 0.4, 1.0])),
    8: st.tuples(st.just("rollout"), st.integers(0, 7)),
    15: st.tuples(st.sampled_from(["quality", "leader"]), WHICH),
    16: st.tuples(st.just("use"), WHICH),
}
ACTIONS = st.sampled_from([each for weight, action in WEIGHTED.items() for each in [action] * weight]).flatmap(
    lambda action: action
)


def warm_up(model: Model, which: int, how: str) -> None:
    if model.jobs:
        job = list(model.jobs.values())[which % len(model.jobs)]
        model.finish_warmup(job, proven=how != "failed", torn=how == "torn")


def delete(model: Model, which: int) -> None:
    if model.live:
        model.remove(sorted(model.live)[which % len(model.live)])


def refer(model: Model) -> None:
    """The ConfigMap of prompt d comes or goes."""
    model.values["ConfigMap", "texts"] = None if model.values["ConfigMap", "texts"] else {"system": "text d"}


TWO = [{"weight": 20, "pause": "10s"}, {"weight": 60, "pause": "10s"}]
ROLLOUTS: list[dict] = [
    {},
    {"steps": TWO},
    {"steps": TWO, "paused": True},
    {"steps": TWO[:1], "autoPromote": False, "maxSurge": 2},
    {"autoPromote": False, "revisionHistoryLimit": 1},
    {"steps": TWO, "maxSurge": 2, "revisionHistoryLimit": 0},
    {"steps": TWO[:1], "maxSurge": 0},
    {"steps": TWO[:1], "retireDeadline": "20s"},
]


def told(model: Model, share: float, named: float) -> None:
    """The routers can be read, and tell of this mix."""
    model.mix = (share, named)


def use(model: Model, seed: int) -> None:
    """The routers say what each slot holds and works on; of some they say nothing."""
    draws = random.Random(seed)
    told = [slot for slot in range(MOST) if draws.random() < 0.8]
    model.use = {
        each.fingerprint: {slot: SlotUse(1, draws.choice([0, 100, 5000]), draws.randrange(3)) for slot in told}
        for each in model.world().revisions
    }


def judged(model: Model, number: int) -> None:
    """How the wanted revision does from here on, and whether the readings span enough time."""
    model.quality = ["good", "good", "bad", "few"][number % 4]
    model.settled = number % 3 > 0


USERS = {
    "rollout": lambda number: {"rollout": {"retireAfter": "2m", **ROLLOUTS[number]}},
    "prompt": lambda letter: {"prompt": {"system": f"text {letter}"} if letter != "d" else REFERENCE},
    "replicas": lambda count: {"replicas": count},
    "image": lambda number: {"engine": {"image": f"engine:{number % 2}"}},
}
ACTORS = {
    "operate": Model.operate,
    "crash": Model.crash,
    "control": Model.control,
    "surroundings": Model.surroundings,
    "routers": Model.routers_look,
    "time": lambda model, seconds: model.pass_time(timedelta(seconds=seconds)),
    "warmup": warm_up,
    "delete": delete,
    "reference": refer,
    "traffic": told,
    "quality": judged,
    "use": use,
    "leader": lambda model, _: model.change_leader(),
}
PODS = {
    "kubelet": Model.kubelet,
    "request": Model.request,
    "answer": Model.answer,
    "restart": lambda model, pod, seen: model.restart(pod, seen=seen),
    "kill": lambda model, pod, at_once: model.kill(pod, at_once=at_once),
}


def perform(model: Model, action: tuple) -> None:
    name, *arguments = action
    if name in USERS:
        model.edit(**USERS[name](*arguments))
    elif name in ACTORS:
        ACTORS[name](model, *arguments)
    elif model.pods:
        which, *how = arguments
        PODS[name](model, model.pods[which % len(model.pods)], *how)


def check_at_rest(model: Model) -> None:
    target, replicas = target_of(model), model.spec["replicas"]
    name = desired.name(model.world().group, target)
    wanted = {("Deployment", name), ("PodDisruptionBudget", name), ("ConfigMap", name), ("PromptRoute", "support")}
    assert wanted <= set(model.live)
    kept = [each for (kind, other), each in model.live.items() if kind == "Deployment" and other != name]
    assert len(kept) <= model.spec["rollout"].get("revisionHistoryLimit", 3)
    assert all(each["spec"]["replicas"] == 0 for each in kept)
    history = {(kind, each["metadata"]["name"]) for each in kept for kind in ("Deployment", "ConfigMap")}
    assert all(model.by_hand and kind == "ConfigMap" for kind, _ in set(model.live) - wanted - history)
    assert model.live["Deployment", name]["spec"]["replicas"] == replicas
    noted = model.live["Deployment", name]["metadata"]["annotations"]
    assert annotations.SUPERSEDED not in noted
    assert annotations.STEP not in noted or not replicas
    slots = sorted(pod.slot for pod in model.pods)
    assert len(set(slots)) == replicas
    assert set(slots) <= set(range(MOST)), "a free number is taken before a new one"
    assert all(pod.serves and pod.ready and pod.draining_since is None and pod.cost == 0 for pod in model.pods)
    route = decode_group("chat", "support", model.live["PromptRoute", "support"]["spec"])
    (revision,) = route.revisions
    assert (revision.fingerprint, revision.weight) == (target, 100)
    assert [(slot.index, slot.state) for slot in revision.slots] == [(i, SlotState.READY) for i in slots]
    assert {slot.pod: slot.index for slot in revision.slots} == {pod.name: pod.slot for pod in model.pods}
    if replicas:
        assert revision.tokens == PREFIX_TOKENS
        assert revision.engine == Engine(desired.engine_settings(model.world().group), KV_TOKENS, PREFILL_RATE)
    conditions = {each["type"]: each["status"] for each in model.status["conditions"]}
    assert conditions["Ready"] == ("True" if replicas else "False")
    assert conditions["Progressing"] == conditions["Degraded"] == "False"
    assert model.status["observedGeneration"] == model.generation
    assert model.status["warm"] == f"{replicas}/{replicas}"


STALE_WARM_UP = [
    *[("operate", 100), ("control", 0), ("operate", 100), ("kubelet", 0), ("kubelet", 0), ("replicas", 3)],
    *[("operate", 2), ("leader", 0), ("operate", 100), ("replicas", 1), ("warmup", 0, "proven"), ("leader", 0)],
]
"""A pass that began before a proof is resumed after it, and has the replica warmed once more."""

ONE_BY_ONE = [
    *[("operate", 100), ("surroundings",), ("operate", 100), ("warmup", 70, "proven")],
    *[("prompt", "b"), ("replicas", 5), ("rollout", 6)],
]
"""A release of five replicas without a surge takes longer than others."""


@pytest.mark.slow
@examples(HISTORIES)
@example(False, STALE_WARM_UP)
@example(False, ONE_BY_ONE)
@given(st.booleans(), st.lists(ACTIONS, min_size=30, max_size=80))
def test_any_history_ends_in_the_state_that_the_spec_asks_for(warm, history):
    model = Model(datetime(2026, 11, 3, 12, tzinfo=UTC), dict(SPEC), {("ConfigMap", "texts"): None})
    if warm:
        model.settle(timedelta(seconds=10))
    for action in history:
        perform(model, action)
    finish(model)


DAYS = timedelta(days=400)
SHRUNK = [("replicas", 1), ("operate", 100), ("operate", 100)]
"""A replica is told to drain."""
RELEASED = [("prompt", "b"), *[("operate", 100), ("surroundings",)] * 6]
"""A revision is superseded."""


@pytest.mark.slow
@examples(HISTORIES // 5)
@example(SHRUNK, DAYS)
@example(RELEASED, DAYS)
@given(st.lists(ACTIONS, min_size=10, max_size=60), st.sampled_from([timedelta(seconds=2), DAYS]))
def test_a_clock_that_was_ahead_leaves_nothing_that_is_waited_for(history, ahead):
    """The clock of the operator's node is set at the end, or the next operator runs elsewhere."""
    model = Model(datetime(2026, 11, 3, 12, tzinfo=UTC), dict(SPEC), {("ConfigMap", "texts"): None})
    model.settle(timedelta(seconds=10))
    model.ahead = ahead
    for action in history:
        perform(model, action)
    model.pending, model.ahead = [], timedelta()
    finish(model)


def finish(model: Model) -> None:
    """Let the world come to rest: nothing holds the release up any more, and the routers tell nothing bad."""
    model.rival = None
    model.quality, model.settled = "good", True
    model.edit(rollout=model.spec["rollout"] | {"paused": False, "autoPromote": True})
    model.values["ConfigMap", "texts"] = {"system": "text d"}
    model.mix = (None, 1.0)
    # without a surge replicas are replaced one by one
    while_released = RETIRE_AFTER * (2 if model.spec["rollout"].get("maxSurge", 1) else 4)
    model.settle(while_released)
    if rolled_back(model):
        check_rolled_back(model)
        model.edit(engine={"image": "engine:9"})
        model.settle(while_released)
    check_at_rest(model)


def rolled_back(model: Model) -> bool:
    name = desired.name(model.world().group, target_of(model))
    return annotations.ROLLED_BACK in model.live["Deployment", name]["metadata"]["annotations"]


def check_rolled_back(model: Model) -> None:
    """The old revision serves with all replicas, and it is said why."""
    conditions = {each["type"]: each for each in model.status["conditions"]}
    assert conditions["Degraded"]["reason"] == conditions["Progressing"]["reason"] == "RolledBack"
    route = decode_group("chat", "support", model.live["PromptRoute", "support"]["spec"])
    (serving,) = (each for each in route.revisions if each.weight)
    assert serving.weight == 100
    assert serving.fingerprint != target_of(model)
    if model.spec["replicas"]:
        assert [slot.state for slot in serving.slots] == [SlotState.READY] * model.spec["replicas"]
        assert conditions["Ready"]["status"] == "True"


LIFE = [
    {"replicas": 2},
    {"replicas": 3},
    {"prompt": {"system": "text b"}},
    {"replicas": 1},
    {"engine": {"image": "engine:2"}},
    {"prompt": {"system": "text a"}},
    {"replicas": 0},
    {"replicas": 2},
]
"""Create, scale up, release, scale down, update, roll back, stop, start."""


@pytest.mark.heavy
@pytest.mark.parametrize("torn", [False, True])
def test_a_life_in_which_the_operator_dies_after_every_single_effect(torn):
    model = Model(datetime(2026, 11, 3, 12, tzinfo=UTC), dict(SPEC))
    for edit in LIFE:
        model.edit(**edit)
        for _ in range(200):
            model.operate(1)
            crashed = bool(model.pending)
            for job in list(model.jobs.values()):
                model.finish_warmup(job, proven=True, torn=torn)
                torn = False
            model.crash()
            model.control()
            for pod in list(model.pods):
                model.kubelet(pod)
                model.request(pod)
                model.answer(pod)
            model.pass_time(timedelta(milliseconds=500))
            if not crashed:
                break
        else:
            pytest.fail(f"no progress after {edit}")
        model.settle(RETIRE_AFTER * 2)
        check_at_rest(model)


@pytest.mark.heavy
def test_a_spec_that_cannot_be_acted_on_comes_to_rest_and_serves_on():
    model = Model(datetime(2026, 11, 3, 12, tzinfo=UTC), dict(SPEC), {("ConfigMap", "texts"): None})
    model.settle(timedelta(seconds=10))
    before = model.live["PromptRoute", "support"]
    model.edit(prompt=REFERENCE)
    model.settle(timedelta(minutes=5))
    assert model.live["PromptRoute", "support"] == before
    assert {each["type"]: each["reason"] for each in model.status["conditions"]}["Ready"] == "PromptNotFound"


@pytest.mark.heavy
def test_a_revision_that_never_warms_takes_no_traffic_and_goes_when_it_is_not_wanted():
    model = Model(datetime(2026, 11, 3, 12, tzinfo=UTC), dict(SPEC))
    model.settle(timedelta(seconds=10))
    model.edit(prompt={"system": "text b"})
    for _ in range(20):
        model.operate()
        model.control()
        for pod in model.pods:
            model.kubelet(pod)
        for job in list(model.jobs.values()):
            model.finish_warmup(job, proven=False)
        model.pass_time(timedelta(minutes=1))
    route = decode_group("chat", "support", model.live["PromptRoute", "support"]["spec"])
    assert {
        each.weight: len([slot for slot in each.slots if slot.state is SlotState.READY]) for each in route.revisions
    } == {
        100: 2,
        0: 0,
    }
    assert {each["type"]: each["reason"] for each in model.status["conditions"]}["Degraded"] == "PrefixNotCached"
    model.edit(prompt={"system": "text a"})
    model.settle(RETIRE_AFTER * 2)
    check_at_rest(model)


@pytest.mark.heavy
@pytest.mark.parametrize("rollout", [{}, {"paused": True}, {"autoPromote": False}, {"steps": TWO}])
def test_the_pods_that_serve_are_replaced_while_the_new_prompt_cannot_be_warmed(rollout):
    """Whether one or all of them go, the old prompt serves again as soon as a replica of it is warm."""
    for count in (1, 2):
        model = Model(datetime(2026, 11, 3, 12, tzinfo=UTC), SPEC | {"replicas": count})
        model.settle(timedelta(seconds=10))
        old = target_of(model)
        model.edit(prompt={"system": "text b"}, rollout={"retireAfter": "2m", **rollout})
        for turn in range(60):
            if turn == 20:
                for pod in [each for each in model.pods if each.fingerprint == old]:
                    model.kill(pod, at_once=True)
            model.operate()
            model.control()
            for pod in list(model.pods):
                model.kubelet(pod)
            for job in list(model.jobs.values()):
                model.finish_warmup(job, proven=job.prompt.system == "text a")
            model.pass_time(timedelta(seconds=10))
        route = decode_group("chat", "support", model.live["PromptRoute", "support"]["spec"])
        served = {each.fingerprint: each for each in route.revisions}
        assert served[old].weight == 100
        assert [slot.state for slot in served[old].slots] == [SlotState.READY] * count


@pytest.mark.slow
def test_three_releases_under_endless_load_leave_one_revision_with_replicas():
    """Sessions are all new and as many as the replicas can take, so that each engine is busy at every moment."""
    model = Model(datetime(2026, 11, 3, 12, tzinfo=UTC), dict(SPEC))
    model.settle(timedelta(seconds=10))
    model.own, model.mix = (model.now, {}), (None, 1.0)

    def run(span: timedelta) -> None:
        until = model.now + span
        while model.now < until:
            model.busy = {each.fingerprint: model.now for each in model.world().revisions}
            model.own[1][target_of(model)] = model.now
            model.surroundings()
            model.operate()
            model.pass_time(timedelta(seconds=1))

    for text in "bca":
        model.edit(prompt={"system": f"text {text}"})
        run(timedelta(seconds=100))
    run(RETIRE_AFTER + timedelta(seconds=30))
    (left,) = [each for each in model.world().revisions if each.alive]
    assert left.fingerprint == target_of(model)
    assert left.ready == model.spec["replicas"]
