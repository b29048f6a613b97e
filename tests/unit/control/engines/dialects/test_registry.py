"""An engine is one value: with a fourth one in the place of vLLM, whatever depends on the engine follows that value."""

import ast
from pathlib import Path

import pytest

import promptgroup_operator
from promptgroup_contract.table import PromptRef
from promptgroup_operator.api.prompt_group import EngineType
from promptgroup_operator.engines import engine_metrics, tiers
from promptgroup_operator.engines.dialects import registry
from promptgroup_operator.engines.dialects.dialect import Dialect
from promptgroup_operator.engines.dialects.metric_names import MetricNames
from promptgroup_operator.engines.dialects.pod_parts import ManualTier, PodParts
from promptgroup_operator.plan import desired
from promptgroup_operator.world.load import TierReach
from support.builders import FINGERPRINT, group, spec

NAMED_BY = {"api", "engines/dialects/registry.py"}
"""What may name an engine: the schema with its rules, and the list of all engines."""

FOURTH = Dialect(
    args=("serve", "{model}", "--listen={port}"),
    served_name="--name={model}",
    health="/alive",
    metrics=MetricNames(
        path="/counters",
        queries=("fourth_tokens_total",),
        hits=("fourth_cached_total",),
        generated=("fourth_generated_total",),
        requests=("fourth_requests_total",),
        running=("fourth_running",),
        waiting=("fourth_waiting",),
        usage=("fourth_usage",),
        first_token="fourth_first_token_seconds",
    ),
    batch_flag="--step-tokens",
    sequences_flag="--sequences",
    parallel_flags=frozenset({"--gpus"}),
    caching_off="--forget",
    caching_off_parts=PodParts(args=("--forget",)),
    salted=frozenset(),
    rank_flag="--copies",
    unranked=frozenset(("text",)),
    ranked_since=(2, 0),
    adapters=None,
    image="example/fourth",
    tiers_since=(2, 0),
    tiers=lambda spec: PodParts(args=(f"--spill={spec.cache.offload.memory if spec.cache.offload else 'pool'}",)),
    tiers_problem=lambda spec: "spec.cache.offload.memory is odd" if "7" in str(spec.cache.offload) else "",
    manual_setting=lambda engine: "--spill" if any("--spill" in arg for arg in engine.args) else "",
    manual_tier=lambda engine, setting: ManualTier(setting, len(engine.args)),
    split_setting=lambda args: "--half" if "--half" in args else "",
)


@pytest.fixture(autouse=True)
def fourth(monkeypatch):
    monkeypatch.setitem(registry.DIALECTS, EngineType.VLLM, FOURTH)


def container(**fields):
    made = desired.deployment(group(**fields), FINGERPRINT, 1, PromptRef("ConfigMap", "x"), records={})
    return made["spec"]["template"]["spec"]


def test_its_pod_is_started_probed_and_drained_by_its_own_value():
    pod = container(engine={"image": "example/fourth:2.1", "args": ["--gpus=2", "--step-tokens=4k", "--sequences=24"]})
    (engine,) = pod["containers"]
    assert engine["args"] == [
        "serve",
        engine["args"][1],
        "--listen=8000",
        "--gpus=2",
        "--step-tokens=4k",
        "--sequences=24",
    ]
    assert engine["readinessProbe"]["httpGet"]["path"] == "/alive"
    assert {"/counters", "fourth_running,fourth_waiting"} <= set(engine["lifecycle"]["preStop"]["exec"]["command"])
    assert "shm" in {volume["name"] for volume in pod["volumes"]}
    live = {"spec": {"template": {"spec": pod}}}
    assert desired.step_tokens(group(), live) == 4000
    assert desired.max_sequences(group(), live) == 24


@pytest.mark.parametrize(
    ("cache", "argument"),
    [
        ({"offload": {"memory": "64Gi"}}, "--spill=64Gi"),
        ({"pool": {"type": "LMCache", "address": "pool:5555"}}, "--spill=pool"),
        ({"prefixCaching": "Disabled"}, "--forget"),
    ],
    ids=["offload", "pool", "no caching"],
)
def test_its_tiers_are_its_own(cache, argument):
    assert argument in container(engine={"image": "example/fourth:2.1"}, cache=cache)["containers"][0]["args"]


def test_what_is_wrong_with_its_tiers_is_its_own():
    memory = {"offload": {"memory": "64Gi"}}
    assert tiers.problem(spec(engine={"image": "example/fourth:2.1"}, cache=memory), None) == ""
    assert "2.0 or newer" in tiers.problem(spec(engine={"image": "example/fourth:1.9"}, cache=memory), None)
    assert "odd" in tiers.problem(spec(engine={"image": "example/fourth"}, cache={"offload": {"memory": "7Gi"}}), None)
    by_hand = spec(engine={"image": "example/fourth", "args": ["--spill=1"]})
    assert tiers.manual_tier(by_hand.engine) == ManualTier("--spill", 1)
    assert tiers.reach(by_hand) is TierReach.UNSEEN


def test_an_argument_that_makes_it_one_half_of_a_pair_is_refused():
    problem = desired.role_problem(group(engine={"image": "example/fourth:2.1", "args": ["--half"]}))
    assert problem is not None
    assert "--half makes the engines one half" in problem.message
    assert desired.role_problem(group(engine={"image": "example/fourth:2.1"})) is None


def test_its_metrics_are_read_by_their_names():
    reading = engine_metrics.reading("fourth_tokens_total 100\nfourth_cached_total 75\n", FOURTH.metrics)
    assert (reading.queries, reading.hits) == (100, 75)


def test_a_part_that_is_missing_is_an_error():
    with pytest.raises(TypeError, match="missing 20 required keyword-only arguments"):
        Dialect(args=("serve",))


def test_nothing_else_names_an_engine():
    root = Path(promptgroup_operator.__file__).parent
    naming = set()
    for path in root.rglob("*.py"):
        for node in ast.walk(ast.parse(path.read_text())):
            if isinstance(node, ast.Attribute) and isinstance(node.value, ast.Name) and node.value.id == "EngineType":
                naming.add(path.relative_to(root).as_posix())
    assert {name for name in naming if not name.startswith(tuple(NAMED_BY))} == set()
