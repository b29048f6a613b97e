"""What becomes of the outcomes of warm-ups."""

import pytest

from promptgroup_contract.table import Prompt
from promptgroup_operator.world.effects import ConditionChange
from promptgroup_operator.world.snapshot import PodCondition
from promptgroup_operator.world.warming import LastSeen, Outcome, Refresh, WarmReason, Warmup
from support.builders import NOW, TEXT, reading
from support.passrun import GROUP, KEY, WARM, FailingWriter, Writer, passes


@pytest.mark.parametrize("outcome", [WARM, Outcome(WarmReason.REFUSED, "status 400")])
def test_the_outcome_of_a_warm_up_is_written_counted_and_looked_at_by_the_next_pass(reconciler, outcome):
    reconciler._writer.to = writer = Writer()
    job = Warmup("p0", "u0", "c", "a:1", GROUP.spec.engine.type, "llama", Prompt(TEXT), "c", 0, False, NOW)
    reconciler._outcomes.report_warmup(KEY, job, outcome)
    assert writer.calls == [("set_condition", "chat", ConditionChange("p0", "u0", outcome))]
    counted = {each.labels["outcome"]: each.value for each in reconciler._outcomes._counter.collect()[0].samples}
    assert counted[outcome.reason] == 1
    queue = reconciler._outcomes._queue
    assert queue.is_ahead(KEY) == (outcome is WARM), "only a replica that serves waits for a slot"
    assert queue.take() == KEY


def test_the_refresh_of_a_guest_is_remembered_and_a_pass_looks_at_it(reconciler):
    reconciler._writer.to = writer = Writer()
    proof = PodCondition("True", WarmReason.PROVEN, "", NOW)
    refresh = Refresh(
        "p0",
        "u0",
        "c",
        "a:1",
        GROUP.spec.engine.type,
        "llama",
        Prompt(TEXT),
        96,
        96,
        proof,
        LastSeen(NOW, reading(), reading()),
        fingerprint="f",
        shared=True,
    )
    reconciler._outcomes.report_refresh(KEY, refresh, Outcome(WarmReason.EVICTED, "10 of 96"))
    assert writer.calls == [], "the pod's condition is that of its host"
    assert reconciler._outcomes._guest_proofs.of(KEY, ["c"])["c", "f"].condition.reason == WarmReason.EVICTED
    assert reconciler._outcomes._queue.take() == KEY


def test_the_outcome_of_a_warm_up_that_could_not_be_written_is_written_by_a_later_pass(half_warm, reconciler, wanted):
    reconciler._writer.to = writer = FailingWriter("Pod cold", 503, "no")
    passes(reconciler, 1)
    outcome = Outcome(WarmReason.PROVEN, "all of it was found")
    job = Warmup(
        "cold",
        "uid-cold",
        "containerd://cold",
        "a:1",
        GROUP.spec.engine.type,
        "llama",
        Prompt(TEXT),
        "c",
        0,
        False,
        NOW,
    )
    reconciler._outcomes.report_warmup(KEY, job, outcome)
    assert reconciler._outcomes._queue.take() == KEY
    passes(reconciler, 2)
    assert wanted[-1] == [], "it is warm: only nobody could write that yet"
    assert writer.told["Degraded"]["reason"] == "WriteFailed"
    writer.fails = "nothing"
    reconciler._performer._failed_writes.forget(KEY)
    passes(reconciler, 1)
    assert "Pod cold warm True" in writer.written
    assert reconciler._outcomes._late[KEY] == {}
