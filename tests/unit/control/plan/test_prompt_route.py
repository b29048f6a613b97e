from dataclasses import replace

import pytest

from promptgroup_contract.caller_rules import NO_RULES, CachedTokens, CallerLimits, EngineField
from promptgroup_contract.encoding import encode_group
from promptgroup_contract.engine_tls import EngineTls
from promptgroup_contract.table import (
    CacheScope,
    Engine,
    Policy,
    PromptRef,
    ResponseCaching,
    Sharing,
    Slot,
    SlotState,
    TimeLimits,
)
from promptgroup_operator.api.prompt_group import EngineType
from promptgroup_operator.base.timestamps import rfc3339
from promptgroup_operator.engines.dialects.registry import DIALECTS
from promptgroup_operator.plan import desired
from promptgroup_operator.plan.prompt_route import ready, ring, route, sends_to
from promptgroup_operator.rollout.release import RevisionPhase, RevisionStep
from promptgroup_operator.world.engine_facts import UNKNOWN, Measured
from support.builders import CREATED, FINGERPRINT, NOW, SETTINGS, TEXT, ago, cold, group, pod, restarted, revision

READY, DRAINING, ABSENT = SlotState.READY, SlotState.DRAINING, SlotState.ABSENT


def step(replicas, phase=RevisionPhase.SERVING, weight=100):
    return RevisionStep(FINGERPRINT, phase, weight, frozenset(range(replicas)))


RINGS = {
    "a warm holder is ready": ([pod("a")], {"a": 0}, 1, [(0, READY, "a")]),
    "a cold holder's slot is absent and keeps its place": ([restarted("a")], {"a": 0}, 1, [(0, ABSENT, "")]),
    "a slot without a holder is absent": ([], {}, 2, [(0, ABSENT, ""), (1, ABSENT, "")]),
    "a pod without a slot is not in the ring": ([pod("a")], {}, 1, [(0, ABSENT, "")]),
    "a holder that is gone leaves its slot": ([], {"a": 0}, 1, [(0, ABSENT, "")]),
    "a slot above the ring drains": ([pod("a"), pod("b")], {"a": 0, "b": 1}, 1, [(0, READY, "a"), (1, DRAINING, "b")]),
    "a cold one above the ring is absent": ([restarted("b")], {"b": 1}, 1, [(0, ABSENT, ""), (1, ABSENT, "")]),
    "slots between the ring and one that drains are left out": (
        [pod("b")],
        {"b": 5},
        1,
        [(0, ABSENT, ""), (5, DRAINING, "b")],
    ),
    "all of a retiring revision drain": (
        [pod("a"), pod("b")],
        {"a": 0, "b": 1},
        0,
        [(0, DRAINING, "a"), (1, DRAINING, "b")],
    ),
    "slots are in order": ([pod("a"), pod("b")], {"a": 1, "b": 0}, 2, [(0, READY, "b"), (1, READY, "a")]),
}


@pytest.mark.parametrize("case", RINGS)
def test_ring(case):
    pods, held, replicas, expected = RINGS[case]
    assert [(slot.index, slot.state, slot.pod) for slot in ring(pods, held, step(replicas))] == expected


def test_a_slot_says_where_its_engine_is_and_which_process():
    given = pod(
        "a",
        address="10.0.0.7:8000",
        container_id="containerd://0123456789abcdef",
        warmed="containerd://0123456789abcdef",
    )
    assert ring([given], {"a": 0}, step(1)) == (Slot(0, READY, "10.0.0.7:8000", "a", "0123456789ab"),)


def made(revisions, standing=None, of=None):
    plan = {each.fingerprint: step(1) for each in revisions}
    held = {each.fingerprint: {pod.name: pod.slot for pod in each.pods} for each in revisions}
    live = {("Deployment", each.deployment): deployment(of or group(), each) for each in revisions}
    if standing is not None:
        live["PromptRoute", "support"] = standing
    return route(of or group(), revisions, plan, held, live, now=NOW)


def deployment(of, of_revision):
    return desired.deployment(of, of_revision.fingerprint, 1, of_revision.prompt_from, records={})


def test_a_route_carries_what_the_spec_says_of_routing():
    of = group(routing={"policy": "RoundRobin", "loadFactorPercent": 150, "sessionHeader": "X-Chat-Id"})
    found = made([revision(pods=[pod()])], of=of)
    assert (found.namespace, found.name, found.model, found.created) == ("chat", "support", "llama", CREATED)
    assert (found.policy, found.load_factor_percent, found.session_header) == (Policy.ROUND_ROBIN, 150, "x-chat-id")


@pytest.mark.parametrize(
    ("asked", "told"),
    [("ExpectedTTFT", "LeastRequest"), ("BoundedLoad", "LeastRequest"), ("RoundRobin", "RoundRobin")],
)
def test_without_caches_requests_are_balanced_plainly(asked, told):
    of = group(routing={"policy": asked}, cache={"prefixCaching": "Disabled"})
    assert made([revision(pods=[pod()])], of=of).policy == told


def test_time_limits_are_whole_seconds_and_none_unless_the_spec_has_them():
    assert made([revision(pods=[pod()])]).time_limits == TimeLimits()
    of = group(routing={"firstTokenTimeout": "1500ms", "idleTimeout": "1m", "keepAliveInterval": "9s"})
    assert made([revision(pods=[pod()])], of=of).time_limits == TimeLimits(first_token=2, idle=60, keep_alive=9)


@pytest.mark.parametrize(("engine", "most"), [("vLLM", 2), ("SGLang", 0)])
def test_streams_go_on_where_the_engine_tells_ids(engine, most):
    of = group(routing={"resume": {"max": 2}})
    # as of a guest, whose engine is its host's
    host = of.spec.engine.model_copy(update={"type": EngineType(engine)})
    of = replace(of, spec=of.spec.model_copy(update={"engine": host}))
    assert made([revision(pods=[pod()])], of=of).max_resumes == most
    assert made([revision(pods=[pod()])]).max_resumes == 0


def test_a_route_says_what_callers_may_ask_and_learn():
    assert made([revision(pods=[pod()])]).callers == NO_RULES
    fields = {
        "allowedEngineFields": ["rid"],
        "allowedEngineHeaders": ["x-tenant"],
        "isolation": "Caller",
        "reportCachedTokens": "Hidden",
    }
    rules = made([revision(pods=[pod()])], of=group(routing=fields)).callers
    assert (rules.allowed, rules.cached_tokens) == ({EngineField.RID}, CachedTokens.HIDDEN)
    assert rules.headers == {"x-tenant"}
    assert rules.salted == DIALECTS[EngineType.VLLM].salted
    of = group(routing=fields, engine={"type": "SGLang"})
    assert "messages" not in made([revision(pods=[pod()])], of=of).callers.salted


def test_a_route_says_what_callers_may_use():
    limits = {"default": {"requestsPerMinute": 5}, "callers": [{"caller": "b", "weight": 3}, {"caller": "a"}]}
    rules = made([revision(pods=[pod()])], of=group(limits=limits)).callers
    assert rules.default == CallerLimits(requests_per_minute=5)
    assert rules.named == (("a", CallerLimits()), ("b", CallerLimits(weight=3)))


def test_answers_are_kept_where_the_spec_says_so():
    assert made([revision(pods=[pod()])]).responses is None
    of = group(responses={"cache": "Exact", "ttl": "90s", "maxBytes": "2Mi", "scope": "Caller", "trustSeed": True})
    kept = ResponseCaching(ttl=90, max_bytes=2 * 2**20, scope=CacheScope.CALLER, trust_seed=True)
    assert made([revision(pods=[pod()])], of=of).responses == kept


def engine_of(*pods, standing=None, **fields):
    (found,) = made([revision(pods=pods)], standing, group(**fields)).revisions
    return found.tokens, found.engine


def test_a_route_says_who_may_borrow():
    assert made([], of=group(routing={"sharing": "Dedicated"})).sharing is Sharing.DEDICATED
    assert made([]).sharing is Sharing.POOL


def test_of_several_replicas_the_route_tells_what_holds_for_each():
    small = pod("b", 1, measured=Measured(300_000, 9_900, 97))
    args = ["--max-num-batched-tokens=4096"]
    like = desired.engine_settings(group(engine={"args": args}))
    pods = [replace(each, settings=like) for each in (pod("a", 0), small)]
    assert engine_of(*pods, engine={"args": args}) == (97, Engine(like, 300_000, 9_800, 4096))


def test_only_warm_replicas_are_asked():
    other = {"measured": Measured(1, 1, 999), "settings": "other"}
    for not_warm in (restarted("b", 1, **other), cold("b", 1, **other), pod("b", 1, deleting=True, **other)):
        assert engine_of(pod("a", 0), not_warm) == (96, Engine(SETTINGS, 400_000, 9_800, 0))


def test_a_replica_of_which_nothing_was_measured_takes_nothing_from_the_others():
    assert engine_of(pod("a", 0), pod("b", 1, measured=UNKNOWN)) == (96, Engine(SETTINGS, 400_000, 9_800, 0))


COPYING = {"measured": Measured(400_000, 9_800, 96, 71_000)}
POOL = {"pool": {"type": "LMCache", "address": "kv.pools:5555"}}


def copies(*pods, **fields):
    like = desired.engine_settings(group(**fields))
    same = [replace(each, settings=each.settings if each.settings == "other" else like) for each in pods]
    return engine_of(*same, **fields)[1].copy_rate


def test_what_copies_take_is_told_where_all_replicas_share_the_tier():
    assert copies(pod("a", 0), pod("b", 1, **COPYING), cache=POOL) == 71_000
    assert copies(pod("b", 1, **COPYING), cache={"offload": {"memory": "32Gi", "claimName": "kv"}}) == 71_000
    assert copies(pod("b", 1, **COPYING), cache={"offload": {"memory": "32Gi"}}) == 0
    assert copies(pod("b", 1, **COPYING)) == 0
    assert copies(pod("a", 0), cache=POOL) == 0


def test_while_one_replica_may_be_without_the_tier_no_copy_is_told():
    assert copies(pod("a", 0, settings="other"), pod("b", 1, **COPYING), cache=POOL) == 0


@pytest.mark.parametrize("settings", ["", "of-the-engine-before"])
def test_while_one_replica_is_of_another_make_none_is_lent(settings):
    assert engine_of(pod("a", 0), pod("b", 1, settings=settings))[1].settings == ""


def test_without_a_warm_replica_the_length_of_the_prefix_is_what_the_route_says():
    standing = {"spec": encode_group(made([revision(pods=[pod("a", 0)])]))}
    assert engine_of(restarted("a", 0), standing=standing) == (96, Engine(SETTINGS))
    assert engine_of(restarted("a", 0)) == (0, Engine(SETTINGS))


def test_replicas_of_the_engine_before_are_lent_as_what_they_are():
    assert engine_of(pod("a", 0, settings="before"))[1].settings == "before"


def test_a_revision_that_retired_is_not_routed():
    rev = revision()
    plan = {rev.fingerprint: step(0, RevisionPhase.RETIRED, 0)}
    assert route(group(), [rev], plan, {rev.fingerprint: {}}, {}, now=NOW).revisions == ()


def test_a_revision_is_measured_in_bytes_and_refers_to_its_text():
    (found,) = made([revision("ä" * 10)]).revisions
    assert (found.system_bytes, found.tools, found.weight) == (20, False, 100)
    assert found.prompt_from == PromptRef("ConfigMap", f"support-{found.fingerprint[:8]}")
    assert found.prompt is None


def test_a_revision_whose_text_is_gone_is_routed_as_the_route_stands():
    before = made([revision(TEXT)])
    standing = {"spec": encode_group(before)}
    assert made([revision(TEXT, prompt=None)], standing) == before


def test_a_revision_of_which_nobody_knows_the_text_is_not_routed():
    assert made([revision(TEXT, prompt=None)]).revisions == ()
    assert made([revision(TEXT, prompt=None)], {"spec": encode_group(made([revision("b")]))}).revisions == ()


@pytest.mark.parametrize("standing", [None, {}, {"spec": {}}, {"spec": {"revisions": [{}]}}])
def test_no_route_sends_nowhere(standing):
    assert sends_to(standing) == frozenset()


def test_a_route_sends_to_the_pods_of_its_ready_slots():
    rev = revision(pods=[pod("a", 0), restarted("b", 1), pod("c", 7)])
    plan = {rev.fingerprint: step(2)}
    held = {rev.fingerprint: {"a": 0, "b": 1, "c": 7}}
    assert sends_to({"spec": encode_group(route(group(), [rev], plan, held, {}, now=NOW))}) == {"a"}


def test_ready_counts_what_routers_may_send_to():
    rev = revision(pods=[pod("a", 0), restarted("b", 1), pod("c", 7)])
    assert ready(
        route(group(), [rev], {rev.fingerprint: step(2)}, {rev.fingerprint: {"a": 0, "b": 1, "c": 7}}, {}, now=NOW)
    ) == {rev.fingerprint: 1}


def test_routers_are_told_who_may_use_the_group():
    keys = {"type": "APIKey", "apiKey": {"secrets": ["keys"]}, "callers": ["team-a"]}
    routed = route(group(access=keys), (), {}, {}, {}, now=NOW)
    assert (routed.access.type, routed.access.secrets, routed.access.callers) == ("APIKey", ("keys",), ("team-a",))
    assert route(group(), (), {}, {}, {}, now=NOW).access is None


def test_each_slot_says_what_its_own_engine_asks_for():
    """While another Secret is rolled out, pods of both kinds serve."""
    pods = [pod("a", credential="old/key"), pod("b", slot=1, credential="new/key")]
    slots = ring(pods, {"a": 0, "b": 1}, step(2))
    assert [each.credential for each in slots] == ["old/key", "new/key"]


def test_each_slot_says_how_its_own_engine_is_verified():
    """While engines begin to serve TLS, pods of both kinds serve."""
    pods = [pod("a"), pod("b", slot=1, tls="ConfigMap/engine-ca/ca.crt/engines"), pod("c", slot=2, tls="garbage")]
    slots = ring(pods, {"a": 0, "b": 1, "c": 2}, step(3))
    assert [each.tls for each in slots] == [None, EngineTls("ConfigMap", "engine-ca", "ca.crt", "engines"), None]
    assert [each.state for each in slots] == [READY, READY, ABSENT]  # nobody knows how to verify the last


def test_an_alias_is_as_old_as_its_first_route_however_old_the_group_is():
    of = group(modelAliases=["gpt-4o", "l8"])
    first = route(of, (), {}, {}, {}, now=NOW)
    assert [(each.name, each.since) for each in first.aliases] == [("gpt-4o", rfc3339(NOW)), ("l8", rfc3339(NOW))]
    standing = {"spec": encode_group(route(group(modelAliases=["l8"]), (), {}, {}, {}, now=ago(hours=1)))}
    later = route(of, (), {}, {}, {("PromptRoute", "support"): standing}, now=NOW)
    assert [(each.name, each.since) for each in later.aliases] == [
        ("gpt-4o", rfc3339(NOW)),
        ("l8", rfc3339(ago(hours=1))),
    ]
    assert route(group(), (), {}, {}, {("PromptRoute", "support"): standing}, now=NOW).aliases == ()
