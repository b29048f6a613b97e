from dataclasses import replace

import pytest
from hypothesis import given
from hypothesis import strategies as st

from promptgroup_operator.gateway.inference_pool import decide, name
from promptgroup_operator.plan import desired, plan
from promptgroup_operator.plan.plan import pool_unwritten
from promptgroup_operator.world.effects import Deletion, PodUpdate
from promptgroup_operator.world.snapshot import Problem, SeenPools
from support.builders import NOW, group, pod, revision, world

NO_CRD = Problem("NoCRD", "why")
KEYS = {"type": "APIKey", "apiKey": {"secrets": ["keys"]}}


def gateway(name="public", accepted="True", resolved="True", generation=1, **reference):
    kinds = {"Accepted": accepted, "ResolvedRefs": resolved}
    return {
        "parentRef": {"kind": "Gateway", "name": name, "namespace": "edge"} | reference,
        "conditions": [
            {
                "type": kind,
                "status": status,
                "reason": f"{kind}Why",
                "message": "a\nb",
                "observedGeneration": generation,
            }
            for kind, status in kinds.items()
            if status
        ],
    }


def pool(*parents, of="support", owner="uid-support", mode="FailClose", generation=1):
    return {
        "metadata": {
            "name": of,
            "uid": f"uid-of-{of}",
            "generation": generation,
            "ownerReferences": [{"uid": owner}],
        },
        "spec": {"endpointPickerRef": {"failureMode": mode}},
        "status": {"parents": list(parents)},
    }


def seen(*pools, problem=None):
    return SeenPools({each["metadata"]["name"]: each for each in pools}, problem)


def decided(pools, *, taken=False, of=None, **fields):
    return decide(of or group(gateway=fields), pools, taken=taken)


def said(pools, **fields):
    verdict = decided(pools, **fields).verdict
    return verdict.status, verdict.reason


def test_a_group_without_a_gateway_has_none():
    found = decide(group(), seen(pool()), taken=False)
    assert (found.member_of, found.spec, found.verdict) == ("", None, None)


def test_the_pool_selects_by_the_label_that_replicas_get_and_names_the_picker():
    found = decided(seen(), failureMode="FailOpen")
    assert found.spec["selector"] == {"matchLabels": {"promptgroup.dev/inference-pool": found.member_of}}
    assert found.spec["targetPorts"] == [{"number": 8000}]
    reference = {"name": "promptgroup-picker", "port": {"number": 9002}, "failureMode": "FailOpen"}
    assert found.spec["endpointPickerRef"] == reference


def test_a_group_that_joins_another_makes_none():
    found = decided(seen(pool(gateway(), of="all", owner="uid-all")), inferencePool="all")
    assert (found.member_of, found.spec) == ("all", None)
    assert found.verdict.status is True


VERDICTS = {
    "nothing": ((), (False, "NoPool")),
    "no gateway": ((pool(),), (False, "NoParent")),
    "one accepts": ((pool(gateway()),), (True, "PoolAccepted")),
    "a picker that is not found": ((pool(gateway(resolved="False")),), (False, "NotAccepted")),
    "one of two refuses": ((pool(gateway(), gateway("b", accepted="False")),), (False, "NotAccepted")),
    "one has not looked": ((pool(gateway(accepted="")),), (None, "Pending")),
    "one has looked at what was": ((pool(gateway(), generation=2),), (None, "Pending")),
    "the default of early versions": ((pool(gateway(kind="Status", name="default")),), (False, "NoParent")),
}


@pytest.mark.parametrize("case", VERDICTS)
def test_what_gateways_made_of_it(case):
    pools, expected = VERDICTS[case]
    assert said(seen(*pools)) == expected


def test_the_message_names_the_gateways_and_what_they_say_on_one_line():
    pools = seen(pool(*(gateway(f"g{n}") for n in range(5))))
    text = "InferencePool support is accepted by Gateway edge/g0, Gateway edge/g1, Gateway edge/g2 and 2 more"
    assert decided(pools).verdict.message == text
    pools = seen(pool(gateway(accepted="False")))
    assert decided(pools).verdict.message == "Gateway edge/public: AcceptedWhy: a b"


def test_without_the_crd_nothing_is_made_and_replicas_are_labelled():
    found = decided(seen(problem=NO_CRD))
    assert (found.spec, found.member_of, found.verdict.reason) == (None, "support", "NoCRD")


def test_after_a_refusal_it_is_tried_again():
    found = decided(seen(problem=Problem("PoolRefused", "why")))
    assert found.spec is not None
    assert found.verdict.reason == "PoolRefused"


def test_somebody_elses_pool_is_left_alone():
    found = decided(seen(pool(owner="somebody")), taken=True)
    assert (found.spec, found.verdict.reason) == (None, "NameTaken")


def test_a_pool_that_does_not_exist_is_waited_for():
    found = decided(seen(), inferencePool="all")
    assert (found.spec, found.member_of, found.verdict.reason) == (None, "all", "NoPool")


def test_a_group_that_asks_callers_joins_no_pool_that_fails_open():
    pools = seen(pool(gateway(), of="all", mode="FailOpen"))
    found = decided(pools, of=group(gateway={"inferencePool": "all"}, access=KEYS))
    assert (found.member_of, found.verdict.reason) == ("", "FailsOpen")
    assert decided(pools, inferencePool="all").member_of == "all"


JSON = st.recursive(
    st.none() | st.booleans() | st.integers() | st.text(),
    lambda inner: (
        st.lists(inner, max_size=3)
        | st.dictionaries(
            st.sampled_from(["parents", "parentRef", "conditions", "type", "status", "name", "kind", "reason", "spec"]),
            inner,
            max_size=4,
        )
    ),
    max_leaves=12,
)


@given(JSON, JSON)
def test_whatever_a_controller_writes_becomes_a_short_message(spec, status):
    found = decided(seen({"metadata": {"name": "support"}, "spec": spec, "status": status}))
    assert len(found.verdict.message) < 3000
    assert "\n" not in found.verdict.message


# --- in a pass ---------------------------------------------------------------------------------------------


def standing(pods, of, *pools, **fields):
    snapshot = world([revision(pods=pods, **fields)], of=of)
    return replace(snapshot, inference_pools=seen(*pools))


def test_a_replica_joins_the_pool_with_its_slot_in_one_write():
    todo = plan.decide(standing([pod("a", None)], group(replicas=1, gateway={})), NOW)
    assert todo.pod_updates == (PodUpdate("a", "uid-a", 0, None, "support"),)


def test_a_replica_leaves_the_pool_when_it_drains_and_not_before_routers_have_left_it():
    pods = [pod("a", 0, inference_pool="support"), pod("b", 1, inference_pool="support")]
    of = group(replicas=1, gateway={})
    routed = plan.decide(standing(pods, group(replicas=2, gateway={})), NOW).route
    first = standing(pods, of)
    first = replace(first, live={**first.live, ("PromptRoute", "support"): routed})
    assert plan.decide(first, NOW).pod_updates == ()
    assert plan.decide(standing(pods, of), NOW).pod_updates == (PodUpdate("b", "uid-b", 1, NOW, ""),)


def test_a_group_at_rest_behind_a_gateway_writes_nothing():
    of = group(replicas=1, gateway={})
    snapshot = standing([pod("a", 0, inference_pool="support")], of)
    made = plan.decide(snapshot, NOW).pool
    live = made | {"metadata": made["metadata"] | {"uid": "u", "generation": 1}, "status": {"parents": [gateway()]}}
    snapshot = replace(snapshot, inference_pools=seen(live))
    todo = plan.decide(snapshot, NOW)
    assert not pool_unwritten(snapshot, todo)
    assert pool_unwritten(replace(snapshot, inference_pools=seen()), todo)
    assert not pool_unwritten(snapshot, replace(todo, pool=None))
    assert not todo.pod_updates
    assert [each for each in todo.deletions if each.kind == "InferencePool"] == []
    condition = next(each for each in todo.status["conditions"] if each["type"] == "GatewayProgrammed")
    assert (condition["status"], condition["reason"]) == ("True", "PoolAccepted")


def test_a_gateway_does_not_decide_if_the_group_is_ready():
    def ready(todo):
        return [each for each in todo.status["conditions"] if each["type"] == "Ready"]

    pods = [pod("a", 0)]
    with_gateway = plan.decide(standing(pods, group(replicas=1, gateway={})), NOW)
    assert ready(with_gateway) == ready(plan.decide(standing(pods, group(replicas=1)), NOW))


def test_without_the_field_the_pool_goes_and_replicas_leave_it():
    snapshot = standing([pod("a", 0, inference_pool="support")], group(replicas=1), pool())
    todo = plan.decide(snapshot, NOW)
    assert todo.pool is None
    assert todo.deletions == (Deletion("InferencePool", "support", "uid-of-support"),)
    assert todo.pod_updates == (PodUpdate("a", "uid-a", 0, None, ""),)
    assert "GatewayProgrammed" not in {each["type"] for each in todo.status["conditions"]}


def test_a_pool_of_somebody_else_is_not_deleted():
    snapshot = standing([pod("a", 0)], group(replicas=1), pool(owner="somebody"))
    assert plan.decide(snapshot, NOW).deletions == ()


def test_while_the_crd_is_missing_the_pass_comes_back_soon():
    snapshot = world([revision(pods=[pod("a", 0)])], of=group(replicas=1, gateway={}))
    missing = replace(snapshot, inference_pools=seen(problem=NO_CRD))
    assert plan.decide(missing, NOW).requeue_after == plan.WAITING
    unasked = replace(missing, group=group(replicas=1))
    assert plan.decide(unasked, NOW).requeue_after == plan.SETTLED


def test_the_pool_belongs_to_its_group():
    made = desired.inference_pool(group(gateway={}), {})
    (owner,) = made["metadata"]["ownerReferences"]
    assert owner["uid"] == "uid-support"
    assert name(group(gateway={})) == made["metadata"]["name"]
