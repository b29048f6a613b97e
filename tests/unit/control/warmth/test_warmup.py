from datetime import timedelta

import pytest

from promptgroup_contract.table import Prompt
from promptgroup_operator.api.prompt_group import EngineType
from promptgroup_operator.warmth.warmup import PROBE_TAIL, judge_evidence, settle, stale_condition, warmups
from promptgroup_operator.world.engine_facts import Measured
from promptgroup_operator.world.snapshot import PodCondition
from promptgroup_operator.world.warming import Evidence, Outcome, WarmReason, Warmup
from support.builders import FINGERPRINT, NOW, SETTINGS, TEXT, ago, cold, pod, restarted, spec, starting

OFF = "--disable-radix-cache"


def evidence(**fields):
    return Evidence(
        **{"shared_tokens": 100, "prompt_tokens": 110, "cached_tokens": 96, "step": 16, "caching": True} | fields
    )


JUDGED = {
    "caching off is the cause, whatever else is said": (
        evidence(caching=False, cached_tokens=96),
        WarmReason.CACHING_OFF,
    ),
    "caching off and nothing reported": (evidence(caching=False, cached_tokens=None), WarmReason.CACHING_OFF),
    "caching on and nothing reported": (evidence(cached_tokens=None), WarmReason.NOT_REPORTED),
    "caching not said and nothing reported": (evidence(caching=None, cached_tokens=None), WarmReason.NOT_REPORTED),
    "a prefix shorter than a block": (evidence(shared_tokens=15, cached_tokens=0), WarmReason.SHORT),
    "a short prefix of an engine that does not say whether it caches": (
        evidence(shared_tokens=15, cached_tokens=0, caching=None),
        WarmReason.SHORT,
    ),
    "every whole block of the prefix": (evidence(cached_tokens=96), WarmReason.PROVEN),
    "more than the prefix": (evidence(cached_tokens=112), WarmReason.PROVEN),
    "one block less": (evidence(cached_tokens=80), WarmReason.NOT_CACHED),
    "nothing": (evidence(cached_tokens=0), WarmReason.NOT_CACHED),
    "a prefix of exactly one block": (evidence(shared_tokens=16, cached_tokens=16), WarmReason.PROVEN),
    "a prefix of exactly one block that is not there": (
        evidence(shared_tokens=16, cached_tokens=0),
        WarmReason.NOT_CACHED,
    ),
    "an engine that caches single tokens": (evidence(step=1, cached_tokens=99), WarmReason.NOT_CACHED),
    "proof although caching is not said": (evidence(caching=None), WarmReason.PROVEN),
    "no tokenizer: the probe's tail is left out": (
        evidence(shared_tokens=None, prompt_tokens=PROBE_TAIL + 100, cached_tokens=96),
        WarmReason.PROVEN,
    ),
    "no tokenizer: what is missing is more than the tail": (
        evidence(shared_tokens=None, prompt_tokens=PROBE_TAIL + 112, cached_tokens=96),
        WarmReason.NOT_CACHED,
    ),
    "no tokenizer and a prompt shorter than the tail": (
        evidence(shared_tokens=None, prompt_tokens=PROBE_TAIL - 1, cached_tokens=0),
        WarmReason.SHORT,
    ),
}


@pytest.mark.parametrize("case", JUDGED)
def test_judge(case):
    given, expected = JUDGED[case]
    outcome = judge_evidence(given, OFF)
    assert outcome.reason is expected
    assert outcome.warm is (expected in (WarmReason.PROVEN, WarmReason.SHORT))


@pytest.mark.parametrize("caching", [True, False, None])
def test_of_engines_that_shall_not_cache_no_proof_is_asked(caching):
    outcome = judge_evidence(evidence(caching=caching, cached_tokens=None), OFF, uncached=True)
    assert (outcome.reason, outcome.warm) == (WarmReason.UNCACHED, True)


def test_a_warm_up_knows_that_its_group_asks_for_no_caching():
    of = spec(cache={"prefixCaching": "Disabled"})
    assert [each.uncached for each in warmups([cold("a")], Prompt(TEXT), of)] == [True]
    assert [each.uncached for each in warmups([cold("a")], Prompt(TEXT), spec())] == [False]


def test_the_messages_carry_the_numbers_and_the_way_out():
    assert judge_evidence(evidence(cached_tokens=80), OFF).message.startswith(
        "80 of 100 prefix tokens are in cache, 96 are expected"
    )
    assert "fewer than the 16" in judge_evidence(evidence(shared_tokens=9, cached_tokens=0), OFF).message
    assert f"remove {OFF} from spec.engine" in judge_evidence(evidence(caching=False), OFF).message


MEASURED = Measured(kv_tokens=400_000, prefill_rate=9_800, prefix_tokens=100)


@pytest.mark.parametrize(
    "found", [{}, {"cached_tokens": 0}, {"cached_tokens": None}, {"caching": False}, {"step": 128}], ids=str
)
def test_what_the_engine_said_of_itself_is_kept_whatever_the_verdict(found):
    assert judge_evidence(evidence(kv_tokens=400_000, prefill_rate=9_800, **found), OFF).measured == MEASURED


def test_a_prefix_that_was_not_tokenized_is_counted_without_the_probes_tail():
    assert judge_evidence(evidence(shared_tokens=None, prompt_tokens=PROBE_TAIL + 7), OFF).measured.prefix_tokens == 7


def asked(of):
    return next(iter(warmups([of], Prompt(TEXT), spec())), None)


NEEDS = {
    "a pod whose containers are ready": (cold(), True),
    "a pod whose engine restarted": (restarted(), True),
    "a pod that was warmed and whose condition was not written": (cold(warmed=cold().container_id), True),
    "a pod that is warm": (pod(), False),
    "a pod whose containers start": (starting(), False),
    "a pod that terminates": (cold(deleting=True), False),
    "a pod without an address": (cold(address=""), False),
    "a pod whose engine does not run": (cold(container_id=""), False),
    "a pod that does not say since when it is ready": (cold(containers_ready_since=None), False),
}


@pytest.mark.parametrize("case", NEEDS)
def test_who_is_warmed(case):
    given, expected = NEEDS[case]
    assert (asked(given) is not None) is expected


def test_a_job_names_the_container_it_is_for_and_when_its_policy_applies():
    given = cold("p1")
    assert asked(given) == Warmup(
        pod="p1",
        uid="uid-p1",
        container_id=given.container_id,
        address=given.address,
        engine=EngineType.VLLM,
        model="llama",
        prompt=Prompt(TEXT),
        cohort=f"{FINGERPRINT} {SETTINGS}",
        proven=0,
        proceed=False,
        deadline=ago(minutes=45),
    )


def a_job(*, proceed, deadline):
    return Warmup("p", "u", "c", "a:1", EngineType.VLLM, "llama", Prompt(TEXT), "kin", 0, proceed, deadline)


def test_a_job_knows_how_many_of_its_kind_were_proven_warm():
    let_through = PodCondition("True", WarmReason.PROCEEDED, "", None)
    others = [pod("p1"), pod("p2", settings="other"), pod("p3", warm=let_through), cold("p4")]
    assert [(each.pod, each.proven) for each in warmups([*others, cold("p5")], Prompt(TEXT), spec())] == [
        ("p4", 1),
        ("p5", 1),
    ]


def test_a_job_has_the_policy_and_the_time_of_its_group():
    (found,) = warmups([cold()], Prompt(TEXT), spec(warmup={"failurePolicy": "Proceed", "timeout": "1m"}))
    assert (found.proceed, found.deadline) == (True, ago(minutes=49))


EARLY, LATE = NOW + timedelta(seconds=1), NOW
PROVEN, NOT_CACHED = Outcome(WarmReason.PROVEN, ""), Outcome(WarmReason.NOT_CACHED, "why")

SETTLED = {
    "proof stands under either policy": (PROVEN, True, LATE, WarmReason.PROVEN),
    "Block waits": (NOT_CACHED, False, EARLY, WarmReason.NOT_CACHED),
    "Block waits beyond its time": (NOT_CACHED, False, LATE, WarmReason.NOT_CACHED),
    "Block stays where waiting does not help": (
        Outcome(WarmReason.CACHING_OFF, ""),
        False,
        LATE,
        WarmReason.CACHING_OFF,
    ),
    "Proceed waits until its time": (NOT_CACHED, True, EARLY, WarmReason.NOT_CACHED),
    "Proceed lets it serve when its time has come": (NOT_CACHED, True, LATE, WarmReason.PROCEEDED),
    "Proceed lets no engine serve that nobody trusts": (
        Outcome(WarmReason.UNTRUSTED, ""),
        True,
        LATE,
        WarmReason.UNTRUSTED,
    ),
}


@pytest.mark.parametrize("case", SETTLED)
def test_settle(case):
    outcome, proceed, deadline, expected = SETTLED[case]
    assert settle(outcome, a_job(proceed=proceed, deadline=deadline), NOW).reason is expected


@pytest.mark.parametrize("reason", [WarmReason.CACHING_OFF, WarmReason.NOT_REPORTED, WarmReason.REFUSED])
def test_proceed_applies_at_once_to_what_waiting_does_not_mend(reason):
    settled = settle(Outcome(reason, "the cause"), a_job(proceed=True, deadline=EARLY), NOW)
    assert settled == Outcome(
        WarmReason.PROCEEDED, "the replica serves cold, as warmup.failurePolicy allows: the cause"
    )


def test_a_replica_that_is_let_through_keeps_what_was_measured():
    failed = Outcome(WarmReason.NOT_CACHED, "why", MEASURED)
    assert settle(failed, a_job(proceed=True, deadline=LATE), NOW).measured == MEASURED


CONDITIONS = {
    "True for this container stands": (pod(), None),
    "True for this container stands while it is not ready": (pod(containers_ready=False), None),
    "True for another container is taken back": (restarted(), WarmReason.RESTARTED),
    "True for a container that ended is taken back": (pod(container_id="", warmed="c1"), WarmReason.RESTARTED),
    "True that nobody recorded is taken back": (pod(warmed=""), WarmReason.RESTARTED),
    "False stands": (cold(), None),
    "False stands although a container is on record": (cold(warmed=cold().container_id), None),
    "none is begun": (starting(warm=None), WarmReason.STARTING),
    "none is begun when the containers are ready": (cold(warm=None), WarmReason.STARTING),
    "a terminating pod is left alone": (restarted(deleting=True), None),
    "a terminating pod without one is left alone": (starting(warm=None, deleting=True), None),
}


@pytest.mark.parametrize("case", CONDITIONS)
def test_stale_condition(case):
    given, expected = CONDITIONS[case]
    found = stale_condition(given)
    assert (found.reason if found is not None else None) is expected
    assert found is None or not found.warm


# --- KV tiers ----------------------------------------------------------------------------------------------


def test_what_a_tier_brought_to_the_probe_is_not_in_the_gpus_memory():
    found = judge_evidence(evidence(cached_tokens=96, tiered=64), OFF)
    assert found.reason is WarmReason.NOT_CACHED
    assert "32 of 100 prefix tokens are in cache and 64 in a KV tier" in found.message
    assert "warmup.tier: Any" in found.message


def test_a_group_may_take_a_prefix_from_a_tier_for_warm():
    found = judge_evidence(evidence(cached_tokens=96, tiered=64), OFF, any_tier=True)
    assert found.reason is WarmReason.PROVEN
    assert "96 of 100 prefix tokens are in cache, 64 of them in a KV tier" in found.message


def test_a_prefix_that_was_copied_says_so_and_in_what_time():
    found = judge_evidence(evidence(copied=80, seconds=0.1234), OFF)
    assert found.reason is WarmReason.PROVEN
    assert found.message.endswith("in the GPU's memory, where 80 were copied from a KV tier in 0.12 s")
    assert found.measured.copy_rate == 0
    assert judge_evidence(evidence(copied=2304, seconds=0.0321), OFF).measured.copy_rate == 71_000


def test_without_a_tier_a_proof_says_nothing_of_one():
    assert judge_evidence(evidence(), OFF).message == "96 of 100 prefix tokens are in cache"


@pytest.mark.parametrize("tier", ["GPU", "Any"])
def test_the_group_says_which_tier_counts(tier):
    given = spec(warmup={"tier": tier})
    (job,) = warmups([cold()], Prompt(TEXT), given)
    assert job.any_tier is (tier == "Any")
