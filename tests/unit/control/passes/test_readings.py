"""What a pass reads: whom it asks, how often, and what it does where nobody answers."""

import pytest

from promptgroup_contract import names
from promptgroup_contract.table import Prompt
from promptgroup_operator.base.errors import EngineError
from promptgroup_operator.observe.cluster_state import ClusterState
from promptgroup_operator.passes.readings import READ_SECONDS, READ_WARM_SECONDS, RELEASE_PERIOD
from promptgroup_operator.plan import plan
from promptgroup_operator.world.load import PERIOD
from promptgroup_operator.world.snapshot import PodCondition, PromptText
from support.builders import CREATED, FINGERPRINT, NOW, TEXT, ago, pod, revision
from support.builders import group as group_object
from support.passrun import FAULTS, GONE_BUDGET, GROUP, KEY, NAME, WRITES, FailingWriter, a_pod, passes, readings

ENDED = {
    "evicted": {"phase": "Failed"},
    "completed": {"phase": "Succeeded"},
    "terminates": {"deletionTimestamp": CREATED},
    "does not run": {"running": False},
}


@pytest.mark.parametrize("how", ENDED)
def test_a_pod_that_ends_is_sent_no_credential_whoever_has_its_address(cluster, engines, reconciler, how):
    cluster.put({"kind": "Secret", "metadata": {"namespace": "chat", "name": "engine-key"}, "data": {"key": "a2V5"}})
    cluster.put(a_pod("runs"))
    cluster.put(a_pod("ended", **ENDED[how]))
    cluster.tell()
    reconciler.observe(KEY, NOW)
    assert engines.of(KEY, "containerd://runs")._access.credential == "key"
    assert engines.plain._access.credential == ""
    with pytest.raises(EngineError):
        engines.of(KEY, "containerd://ended")


READS = {
    "texts": "the prompt's ConfigMap",
    "engine-key": "the engines' credential",
    "engine-ca": "the authority that engines are trusted by",
    names.SECRET_PEERS: "the routers' key",
    f"configmaps/{NAME}": "the copy of the prompt",
    f"poddisruptionbudgets/{NAME}": "an object that has a name of the group's",
    GONE_BUDGET: "the Deployment of a revision that is gone",
}
REFERENCES = ("texts", "engine-key", "engine-ca")


@pytest.mark.parametrize("read_before", [True, False])
@pytest.mark.parametrize("name", READS)
@pytest.mark.parametrize("fault", [each for each in FAULTS if each != "404"])
def test_whatever_read_fails_and_however_the_pass_goes_on_and_it_is_told(
    referring, reconciler, wanted, unreadable, *, name, fault, read_before
):
    if read_before:
        readings(reconciler)._unwatched.cache._clock = lambda: 0.0
        reconciler.observe(KEY, NOW)
        readings(reconciler)._unwatched.cache._clock = lambda: 1000.0
    reconciler._writer.to = writer = FailingWriter("nothing", 0, "")
    tried = unreadable(name, *FAULTS[fault])
    due = passes(reconciler, 3)
    assert len(due) == 3
    assert due[-1] <= plan.WAITING
    assert wanted[-1] == ["cold"]
    unknown = name in REFERENCES and not read_before
    stopped = (f"Deployment {NAME}",) if unknown else ()
    done = " ".join(writer.written)
    assert [write for write in WRITES if write not in ("Secret", *stopped) and write not in done] == []
    degraded = writer.told["Degraded"]
    assert (degraded["status"], degraded["reason"]) == ("True", "ReadFailed")
    assert FAULTS[fault][1] in degraded["message"]
    assert writer.told["Accepted"]["status"] == "True"
    assert writer.told["ResolvedRefs"]["status"] == ("Unknown" if unknown else "True")
    assert name != names.SECRET_PEERS or f"Secret {name}" not in writer.written, "nobody knows that it is missing"
    assert len(tried) == 1, "it is not repeated with every pass"


def test_a_read_that_succeeds_again_is_told_no_more(referring, reconciler, wanted, unreadable):
    reconciler._writer.to = writer = FailingWriter("nothing", 0, "")
    unreadable("engine-key", 503, "no")
    passes(reconciler, 1)
    assert writer.told["Degraded"]["reason"] == "ReadFailed"
    unreadable("nothing", 0, "")
    readings(reconciler)._unwatched.cache._clock = lambda: float("inf")
    passes(reconciler, 1)
    assert writer.told["ResolvedRefs"]["status"] == "True"
    assert writer.told["Degraded"]["reason"] != "ReadFailed"


def a_revision(text, replicas):
    return revision(text, [pod(f"{text}{number}") for number in range(replicas)], replicas=replicas)


SIZED = {"replicas": None, "sizing": {"minReplicas": 1, "maxReplicas": 9}}
LOOKS = {
    "a group at rest, of a fixed size": ({}, [a_revision("a", 2)], None),
    "beside a revision that has retired": ({}, [a_revision("a", 2), a_revision("b", 0)], None),
    "a group that the operator sizes": (SIZED, [a_revision("a", 2)], PERIOD),
    "one that it sizes, beside a revision that has retired": (SIZED, [a_revision("a", 2), a_revision("b", 0)], PERIOD),
    "a release": ({}, [a_revision("a", 1), a_revision("b", 1)], RELEASE_PERIOD),
    "a group that has too many": ({}, [a_revision("a", 3)], RELEASE_PERIOD),
}


@pytest.mark.parametrize("case", LOOKS)
def test_routers_are_read_often_where_a_release_or_what_leaves_needs_their_figures(reconciler, monkeypatch, case):
    spec, revisions, period = LOOKS[case]
    asked = []
    monkeypatch.setattr(readings(reconciler)._routers, "read", lambda _, now, period: asked.append(period) or {})
    monkeypatch.setattr(readings(reconciler), "_observes_all", False)
    text = PromptText(Prompt(TEXT), FINGERPRINT, secret=False)
    state = ClusterState(group_object(**{"replicas": 2, **spec}), text, tuple(revisions), (), {})
    readings(reconciler)._read_routers(state, NOW)
    assert asked == ([period] if period is not None else [])


@pytest.mark.parametrize(
    ("slot", "warm_for", "seconds"),
    [(None, 1, READ_WARM_SECONDS), (0, 1, READ_SECONDS), (None, 60, READ_SECONDS)],
    ids=["has just become warm", "has a slot", "has none for long"],
)
def test_engines_that_do_not_answer_keep_a_replica_that_is_warm_from_its_slot_for_a_quarter_of_a_second(
    reconciler, monkeypatch, slot, warm_for, seconds
):
    asked = []
    monkeypatch.setattr(
        readings(reconciler)._pool, "map", lambda _, job, pods, within: asked.append(within) or [None for _ in pods]
    )
    condition = PodCondition("True", "PrefixCached", "", ago(seconds=warm_for))
    found = revision(TEXT, [pod("p0"), pod("p1", slot, warm=condition)])
    text = PromptText(Prompt(TEXT), FINGERPRINT, secret=False)
    readings(reconciler)._read_engines(ClusterState(GROUP, text, (found,), (), {}), NOW)
    assert asked == [seconds]
