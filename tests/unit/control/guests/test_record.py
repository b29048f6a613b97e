import pytest
from hypothesis import given
from hypothesis import strategies as st

from promptgroup_operator.guests import record
from promptgroup_operator.guests.record import Proof, RecordedRevision
from promptgroup_operator.world.engine_facts import Measured
from promptgroup_operator.world.snapshot import ContainerId, PodCondition
from support.builders import CREATED, FINGERPRINT, NOW, cold, pod

PROOF = Proof(
    ContainerId("containerd://a"), PodCondition("True", "PrefixCached", "96 of 96", NOW), Measured(prefix_tokens=96)
)
REVISION = RecordedRevision(
    FINGERPRINT, CREATED, 2, "Secret", {"promptgroup.dev/release-step": "10"}, {"p0": PROOF, "p1": PROOF}
)
BARE = RecordedRevision("0" * 32, CREATED, 0, "ConfigMap")


def routed(*revisions):
    return {"spec": {"guest": record.encode(revisions)}}


def test_what_is_encoded_is_decoded():
    assert record.decode(routed(REVISION, BARE)) == [REVISION, BARE]


def test_a_route_of_a_group_with_an_engine_remembers_nothing():
    assert record.decode({"spec": {"revisions": []}}) == []
    assert record.decode(None) == []


def test_the_proofs_of_a_revision_are_those_of_warm_pods():
    assert record.proofs_of([pod("p0"), cold("p1")]).keys() == {"p0"}


@pytest.mark.parametrize(
    "change",
    [{"fingerprint": "x" * 32}, {"fingerprint": None}, {"created": "yesterday"}, {"replicas": "2"}, {"replicas": -1}],
)
def test_a_revision_that_cannot_be_read_is_as_good_as_absent(change):
    route = routed(REVISION)
    route["spec"]["guest"]["revisions"][0] |= change
    assert record.decode(route) == []


def test_a_long_message_is_cut():
    told = Proof(PROOF.container, PodCondition("True", "PrefixCached", "x" * 10_000, NOW))
    (found,) = record.decode(routed(RecordedRevision(FINGERPRINT, CREATED, 1, "ConfigMap", proofs={"p0": told})))
    assert len(found.proofs["p0"].condition.message) == record.MOST_MESSAGE


JSON = st.recursive(
    st.none() | st.booleans() | st.integers() | st.floats() | st.text(max_size=8),
    lambda inner: st.lists(inner, max_size=4) | st.dictionaries(st.text(max_size=8), inner, max_size=4),
    max_leaves=12,
)
KEYS = ("fingerprint", "created", "replicas", "promptKind", "records", "warm", "pod", "container", "reason", "since")
LIKELY = st.sampled_from([FINGERPRINT, CREATED, 3, "Secret", {"a": "b"}, ["x"]]) | JSON
PROOFS = st.lists(st.dictionaries(st.sampled_from(KEYS), LIKELY, max_size=6) | JSON, max_size=3)
REVISIONS = st.lists(st.dictionaries(st.sampled_from(KEYS), LIKELY | PROOFS, max_size=8) | JSON, max_size=3)


@given(REVISIONS | JSON)
def test_whatever_a_route_says_is_read_and_can_be_written_again(revisions):
    found = record.decode({"spec": {"guest": {"revisions": revisions}}})
    assert record.decode(routed(*found)) == found
    assert all(0 <= each.replicas <= record.MOST_REPLICAS for each in found)
