from promptgroup_operator.passes.guest_proofs import GuestProofs
from promptgroup_operator.world.engine_facts import Measured
from promptgroup_operator.world.snapshot import ContainerId, Key
from promptgroup_operator.world.warming import Outcome, WarmReason
from support.builders import FINGERPRINT, NOW

KEY, CONTAINER = Key("chat", "support"), ContainerId("containerd://a")


def put(proofs, outcome, *, serves=True):
    proofs.put(KEY, CONTAINER, FINGERPRINT, outcome, serves=serves, now=NOW)


def test_the_latest_outcome_counts_and_a_refresh_keeps_the_length():
    proofs = GuestProofs()
    put(proofs, Outcome(WarmReason.PROVEN, "96 of 96", Measured(prefix_tokens=96)))
    put(proofs, Outcome(WarmReason.EVICTED, "0 of 96"))
    (proof,) = proofs.of(KEY, {CONTAINER}).values()
    assert (proof.container, proof.condition.reason, proof.measured.prefix_tokens) == (CONTAINER, "PrefixEvicted", 96)


def test_one_that_failed_proves_no_container():
    proofs = GuestProofs()
    put(proofs, Outcome(WarmReason.REFUSED, "status 400"), serves=False)
    (proof,) = proofs.of(KEY, {CONTAINER}).values()
    assert (proof.container, proof.condition.status) == ("", "False")


def test_containers_that_are_gone_are_forgotten_and_so_are_groups():
    proofs = GuestProofs()
    put(proofs, Outcome(WarmReason.PROVEN, ""))
    assert proofs.of(KEY, {ContainerId("containerd://b")}) == {}
    assert proofs.of(KEY, {CONTAINER}) == {}
    put(proofs, Outcome(WarmReason.PROVEN, ""))
    proofs.forget(KEY)
    assert proofs.of(KEY, {CONTAINER}) == {}
