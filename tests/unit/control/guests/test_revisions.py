from promptgroup_contract.table import Prompt, PromptRef
from promptgroup_operator.guests import revisions
from promptgroup_operator.guests.record import Proof, RecordedRevision
from promptgroup_operator.world.engine_facts import Measured
from promptgroup_operator.world.snapshot import Host, PodCondition
from support.builders import CREATED, FINGERPRINT, NOW, TEXT, pod

SAID = PodCondition("True", "PrefixCached", "96 of 96", NOW)


def built(*pods, proofs=None, replicas=2, holding=None):
    recorded = RecordedRevision(FINGERPRINT, CREATED, replicas, "ConfigMap", proofs=proofs or {})
    source = PromptRef("ConfigMap", "support-1")
    serving = Host("pool", pods)
    return revisions.revision(
        "support", recorded, source, Prompt(TEXT), serving, standing=(100, {}), holding=holding or {}
    )


def test_a_pod_that_is_warm_for_its_host_is_not_warm_for_a_guest():
    (view,) = built(pod("p0", 4)).pods
    assert (view.is_warm, view.warm, view.slot, view.measured.prefix_tokens) == (False, None, None, 0)
    assert view.measured.kv_tokens == 400_000


def test_slot_and_proof_are_the_guests_own():
    container = pod("p0").container_id
    (view,) = built(
        pod("p0", 4), proofs={"p0": Proof(container, SAID, Measured(prefix_tokens=40))}, holding={"p0": 1}
    ).pods
    assert (view.is_warm, view.slot, view.measured.prefix_tokens) == (True, 1, 40)


def test_a_proof_of_an_earlier_container_proves_nothing():
    (view,) = built(pod("p0"), proofs={"p0": Proof("containerd://before", SAID)}).pods
    assert not view.is_warm


def test_only_so_many_pods_as_the_revision_shall_have():
    assert len(built(pod("p0"), pod("p1"), pod("p2"), replicas=2).pods) == 2


def test_what_was_found_since_the_route_was_written_counts():
    container = pod("p0").container_id
    found = revisions.with_outcomes(
        [built(pod("p0"))], {(container, FINGERPRINT): Proof(container, SAID, Measured(prefix_tokens=40))}
    )
    assert found[0].pods[0].is_warm
    failed = Proof("", PodCondition("False", "WarmupRefused", "status 400", NOW))
    (view,) = revisions.with_outcomes(found, {(container, FINGERPRINT): failed})[0].pods
    assert (view.is_warm, view.warm.reason) == (False, "WarmupRefused")


def test_the_slots_that_a_revision_holds():
    slots = [{"slot": 0, "state": "Ready", "pod": "p0"}, {"slot": 1, "state": "Draining", "pod": "p1"}, {"slot": 2}]
    route = {"spec": {"revisions": [{"fingerprint": FINGERPRINT, "slots": slots}]}}
    assert revisions.holders(route) == {FINGERPRINT: {"p0": 0}}
