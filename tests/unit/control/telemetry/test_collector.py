from dataclasses import replace

import pytest
from prometheus_client import CollectorRegistry, generate_latest
from prometheus_client.parser import text_string_to_metric_families

from promptgroup_operator.sizing.model import fit
from promptgroup_operator.sizing.recommend import SizingDecision, SizingInput, replicas
from promptgroup_operator.telemetry.collector import NUMBERS, OF_REPLICAS, PassSummary, families, summarize
from promptgroup_operator.world.load import GroupLoad
from promptgroup_operator.world.sizing_history import NEW
from promptgroup_operator.world.snapshot import Key, LastSeen
from promptgroup_operator.world.trimmed import SHORTENED, WHOLE_CHARACTERS, trimmed
from support.builders import NOW, ago, pod, reading, revision, spec, world
from support.loads import load

KEY = Key("chat", "support")
CONDITIONS = [
    {"type": "Ready", "status": "True", "reason": "Warm"},
    {"type": "CacheEffective", "status": "False", "reason": "Thrashing"},
    {"type": "Degraded", "status": "True", "reason": "RolledBack"},
    {"type": "ScalingActive", "status": "Unknown", "reason": "FailedGetMetrics"},
]
STATUS = {
    "conditions": CONDITIONS,
    "replicas": 5,
    "revision": "9f2c61d0",
    "revisions": [{"warm": 3}, {"warm": 1}],
}


def stored(name="support", status=STATUS, **fields):
    """As the API server has it."""
    whole = {"model": "llama", "engine": {"type": "vLLM"}, "prompt": {"system": "a secret text"}, **fields}
    return {"metadata": {"namespace": "chat", "name": name}, "spec": whole, "status": status}


def sized(**fields):
    bounds = {"replicas": None, "sizing": {"minReplicas": 2, "maxReplicas": 9}}
    return replicas(spec(**bounds), SizingInput(4, 4, "a", load(**fields)), NEW, NOW)


class Told:
    """What Prometheus reads."""

    def __init__(self, groups, looks, price=0.0):
        registry = CollectorRegistry()
        registry.register(type("Collector", (), {"collect": lambda _: families(groups, looks, price)})())
        self.text = generate_latest(registry).decode()
        self.samples = [each for family in text_string_to_metric_families(self.text) for each in family.samples]

    def __call__(self, name, /, **labels):
        return [each.value for each in self.samples if each.name == name and labels.items() <= each.labels.items()]


@pytest.fixture
def told():
    look = PassSummary(sized(), 0.93, NOW, tier_hit_rate=0.48, tier_hit_rates={"memory": 0.4, "pool": 0.08})
    return Told([stored(sizing={"minReplicas": 2, "maxReplicas": 9})], {KEY: look})


def test_a_group_says_what_it_is_and_how_routers_call_it(told):
    identity = {"group": "chat/support", "model": "llama", "engine": "vLLM", "revision": "9f2c61d0"}
    assert told("promptgroup_info", namespace="chat", name="support", **identity) == [1]


@pytest.mark.parametrize(
    ("kind", "status"), [("Ready", "true"), ("CacheEffective", "false"), ("ScalingActive", "unknown")]
)
def test_a_condition_is_one_at_its_status_and_zero_at_the_others(told, kind, status):
    assert told("promptgroup_status_condition", condition=kind, status=status) == [1]
    assert sorted(told("promptgroup_status_condition", condition=kind)) == [0, 0, 1]


@pytest.mark.parametrize(("kind", "reason"), [("cache_effective", "Thrashing"), ("degraded", "RolledBack")])
def test_the_reason_why_caches_do_not_pay_or_the_group_is_degraded_is_a_label(told, kind, reason):
    assert told(f"promptgroup_{kind}_reason") == told(f"promptgroup_{kind}_reason", reason=reason) == [1]


def test_replicas_are_those_that_are_wanted_that_there_are_and_that_are_warm(told):
    names = ("spec_min", "spec_max", "status_desired", "status_current", "status_warm")
    assert [told(f"promptgroup_{name}_replicas") for name in names] == [[2], [9], [4], [5], [4]]


def test_sizing_tells_what_it_rests_on_of_the_replicas_that_are_wanted(told):
    model = fit(load())
    assert told("promptgroup_hit_ratio") == [0.93]
    assert told("promptgroup_tier_hit_ratio") == [0.48]
    assert told("promptgroup_source_hit_ratio") == [0.4, 0.08]
    assert told("promptgroup_source_hit_ratio", source="pool") == [0.08]
    assert told("promptgroup_sizing_recommended_replicas") == [4]
    assert told("promptgroup_sizing_utilization_ratio") == [pytest.approx(model.utilisation(4))]
    assert told("promptgroup_sizing_predicted_hit_ratio") == [pytest.approx(model.hit_rate(4))]
    assert told("promptgroup_sizing_predicted_ttft_seconds") == [pytest.approx(model.ttft(4))]
    assert told("promptgroup_sizing_working_set_ratio") == [pytest.approx(model.filled(4))]
    assert told("promptgroup_sizing_load_timestamp_seconds") == [NOW.timestamp()]


def test_what_the_load_asks_for_is_told_whatever_bounds_make_of_it():
    verdict = sized(requests=200)
    told = Told([stored()], {KEY: PassSummary(verdict, None, NOW)})
    assert told("promptgroup_sizing_recommended_replicas") == [verdict.requested]
    assert verdict.requested > verdict.value
    assert told("promptgroup_status_desired_replicas") == [verdict.value]


def test_unknown_is_no_series():
    fixed = SizingDecision(3, "FixedReplicas", "spec.replicas asks for 3", active=False)
    told = Told([stored()], {KEY: PassSummary(fixed, None, None)})
    known = {each.name for each in told.samples}
    assert {name for name, *_ in NUMBERS} & known == {
        "promptgroup_status_desired_replicas",
        "promptgroup_status_current_replicas",
        "promptgroup_status_warm_replicas",
    }


@pytest.mark.parametrize("status", [{}, {"observedGeneration": -1}])
def test_a_group_that_no_pass_has_seen_is_there_without_numbers(status):
    told = Told([stored(status=status)], {})
    assert {each.name for each in told.samples} == {"promptgroup_info"}


def test_the_time_of_a_load_stands_until_another_is_known():
    def seen(found):
        return replace(world(), load=found)

    first = summarize(sized(), seen(load()), None, ago(minutes=2))
    assert first.read == ago(minutes=2)
    for nothing in (None, load(stale="no engine could be read yet"), GroupLoad(60.0, None)):
        assert summarize(sized(), seen(nothing), first, NOW).read == ago(minutes=2)
        assert summarize(sized(), seen(nothing), None, NOW).read is None
    assert summarize(sized(), seen(load()), first, NOW).read == NOW


def test_a_replica_tells_by_its_slot_what_its_engine_said_last():
    last = reading(usage=0.4, running=3, waiting=2, preemptions=7.0, tiered=640.0, evicted=900.0, memory_usage=0.7)
    there = pod("p1", 1, last_seen=LastSeen(NOW, reading(), last, NOW, 1.5))
    without = pod("p2", 2, last_seen=LastSeen(NOW, reading(), reading()))
    unread, leaving = pod("p3", 3), pod("p4", 4, deleting=True, last_seen=LastSeen(NOW, reading(), last))
    look = summarize(sized(), world([revision(pods=[there, without, unread, leaving])]), None, NOW)
    told, labels = Told([stored()], {KEY: look}), {"namespace": "chat", "name": "support", "slot": "1"}
    assert {name.removeprefix("promptgroup_replica_"): told(name, **labels) for _, name, *_ in OF_REPLICAS} == {
        "kv_usage_ratio": [0.4],
        "running_requests": [3],
        "waiting_requests": [2],
        "preemptions_total": [7],
        "tier_tokens_total": [640],
        "evicted_tokens_total": [900],
        "memory_tier_usage_ratio": [0.7],
        "queue_seconds_total": [],
        "warmup_seconds": [60],
        "rewarm_seconds": [1.5],
    }
    assert len(told("promptgroup_replica_kv_usage_ratio")) == 2
    assert told("promptgroup_replica_preemptions_total", slot="2") == []


def test_a_load_that_is_not_known_any_more_leaves_the_time_when_it_was():
    stale = PassSummary(sized(stale="Prometheus does not answer"), 0.5, NOW)
    told = Told([stored()], {KEY: stale})
    assert told("promptgroup_sizing_utilization_ratio") == told("promptgroup_sizing_recommended_replicas") == []
    assert told("promptgroup_sizing_load_timestamp_seconds") == [NOW.timestamp()]


def test_only_groups_that_stand_have_series():
    looks = {KEY: PassSummary(sized(), 0.9, NOW), Key("chat", "other"): PassSummary(sized(), 0.5, NOW)}
    told = Told([stored("other"), stored("third")], looks)
    assert {each.labels["name"] for each in told.samples} == {"other", "third"}
    assert told("promptgroup_hit_ratio", name="other") == told("promptgroup_hit_ratio") == [0.5]


def test_no_text_of_a_prompt_is_told(told):
    assert "secret" not in told.text


@pytest.mark.parametrize(
    ("limits", "price", "told_price"),
    [
        ({"nvidia.com/gpu": 4, "memory": "8Gi"}, 2.5, [10.0]),
        ({"nvidia.com/gpu": "2"}, 2.5, [5.0]),
        ({"nvidia.com/gpu": 1, "amd.com/gpu": "1"}, 2.5, [5.0]),
        ({"nvidia.com/gpu": "9" * 5000}, 2.5, []),
        ({"nvidia.com/gpu": "9" * 5000, "amd.com/gpu": 1}, 2.5, [2.5]),
        ({"nvidia.com/gpu": "\u0663"}, 2.5, []),
        ({"nvidia.com/mig-1g.5gb": 1}, 2.5, []),
        ({}, 2.5, []),
        ({"nvidia.com/gpu": 4}, 0.0, []),
    ],
)
def test_a_replica_costs_what_its_gpus_cost_where_a_price_is_given(limits, price, told_price):
    group = stored(engine={"type": "vLLM", "resources": {"limits": limits}})
    assert Told([group], {}, price)("promptgroup_replica_hour_price", namespace="chat", name="support") == told_price


@pytest.mark.parametrize("characters", [100, WHOLE_CHARACTERS + 1])
def test_a_replica_costs_the_same_however_long_its_prompt_is(characters):
    limits = {"nvidia.com/gpu": 2, "memory": "8Gi"}
    engine = {"type": "vLLM", "image": "i", "resources": {"limits": limits}}
    group = stored(prompt={"system": "x" * characters}, engine=engine)
    in_store = trimmed(group, "PromptGroup")
    assert (SHORTENED in in_store) == (characters > WHOLE_CHARACTERS)
    assert Told([in_store], {}, 2.5)("promptgroup_replica_hour_price", namespace="chat", name="support") == [5.0]
