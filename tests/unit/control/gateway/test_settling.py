from dataclasses import replace
from datetime import timedelta

import pytest
from hypothesis import given
from hypothesis import strategies as st

from promptgroup_contract.table import SlotState
from promptgroup_operator.gateway.settling import SETTLING, mark
from promptgroup_operator.plan.plan import MOVING, decide
from promptgroup_operator.world.snapshot import SeenPools
from support.builders import NOW, TEXT, ago, cold, group, pod, revision, text, world

OTHER = f"{TEXT} Be brief."
GATEWAY = group(gateway={})
YOUNG = {"ready_since": ago(seconds=1)}


def settling(*pods, routed=("old",), named=(), now=NOW):
    marked = mark([revision(pods=pods)], frozenset(routed), frozenset({*routed, *named}), now)
    return {each.name for each in marked[0].pods if each.settling}


def test_a_replica_settles_until_it_has_been_ready_for_a_while():
    old, new = pod("old", 0), pod("new", 1, ready_since=NOW)
    assert settling(old, new) == {"new"}
    assert settling(old, new, now=NOW + SETTLING - timedelta(microseconds=1)) == {"new"}
    assert settling(old, new, now=NOW + SETTLING) == set()
    assert settling(old, replace(new, ready_since=None), now=NOW + timedelta(days=1)) == {"new"}


def test_what_was_offered_stays_so():
    assert settling(pod("old", 0), pod("new", 1, **YOUNG), routed=("old", "new")) == set()
    assert settling(pod("old", 0), pod("new", 1, **YOUNG), named=("new",)) == set()  # it drains


def test_where_nobody_else_could_serve_nothing_settles():
    assert settling(pod("new", 1, **YOUNG), routed=()) == set()
    assert settling(cold("old", 0), pod("new", 1, **YOUNG)) == set()
    assert settling(pod("old", 0, deleting=True), pod("new", 1, **YOUNG)) == set()


def test_a_replica_that_is_not_warm_does_not_settle():
    assert settling(pod("old", 0), cold("new", 1, **YOUNG)) == set()


@pytest.mark.parametrize("ahead", [timedelta(minutes=1), timedelta(days=400)])
def test_a_node_whose_clock_is_ahead_keeps_nobody_out(ahead):
    assert settling(pod("old", 0), pod("new", 1, ready_since=NOW + ahead)) == set()


@given(st.integers(-20, 20), st.integers(0, 60))
def test_nobody_settles_for_longer_than_twice_the_time(skew, later):
    ready = NOW + timedelta(seconds=skew)
    found = settling(pod("old", 0), pod("new", 1, ready_since=ready), now=max(ready, NOW) + 2 * SETTLING)
    assert found == set()
    assert settling(pod("old", 0), pod("new", 1, ready_since=ready), now=ready + timedelta(seconds=later)) == (
        {"new"} if later < SETTLING.total_seconds() else set()
    )


# --- a whole pass --------------------------------------------------------------------------------------------


def live(of=GATEWAY):
    """The PromptRoute as it stands while the first revision serves with one replica."""
    before = world([revision(pods=[pod("old", 0)])], of=of)
    return {("PromptRoute", "support"): decide(before, NOW).route | {"metadata": {"ownerReferences": OWNED}}}


OWNED = [{"uid": "uid-support", "controller": True}]


def passed(*revisions, of=GATEWAY, prompt=None):
    seen = world(revisions, of=of, prompt=prompt, live=live(of))
    return decide(replace(seen, inference_pools=SeenPools({})), NOW)


def slots(plan):
    return {slot["slot"]: slot["state"] for each in plan.route["spec"]["revisions"] for slot in each["slots"]}


def test_a_new_replica_gets_its_slot_and_the_pools_label_at_once_and_is_offered_later():
    two = group(gateway={}, replicas=2)
    found = passed(revision(pods=[pod("old", 0), pod("new", None, **YOUNG)]), of=two)
    assert slots(found) == {0: SlotState.READY, 1: SlotState.ABSENT}
    assert {(each.pod, each.slot, each.inference_pool) for each in found.pod_updates} >= {("new", 1, "support")}
    assert found.requeue_after == MOVING
    assert found.status["warm"] == "1/2"
    later = passed(revision(pods=[pod("old", 0), pod("new", 1, ready_since=ago(seconds=3))]), of=two)
    assert slots(later) == {0: SlotState.READY, 1: SlotState.READY}


def test_without_a_gateway_it_is_offered_at_once():
    found = passed(revision(pods=[pod("old", 0), pod("new", 1, **YOUNG)]), of=group(replicas=2))
    assert slots(found) == {0: SlotState.READY, 1: SlotState.READY}


def test_a_release_gives_no_weight_to_replicas_that_gateways_may_not_know():
    of = group(gateway={}, replicas=1, rollout={"steps": []})

    def weights(**new):
        coming = revision(OTHER, [pod("new", 0, **new)], weight=0, slots={})
        found = passed(revision(pods=[pod("old", 0)]), coming, of=of, prompt=text(OTHER))
        return {each["fingerprint"]: each["weight"] for each in found.route["spec"]["revisions"]}

    first, second = revision().fingerprint, revision(OTHER).fingerprint
    assert weights(**YOUNG) == {first: 100, second: 0}
    assert weights(ready_since=ago(seconds=3))[second] > 0
