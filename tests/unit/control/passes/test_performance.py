"""How a plan is performed, whatever fails of it."""

import threading
from dataclasses import replace

import pytest

from promptgroup_operator.base.errors import ClusterError
from promptgroup_operator.plan import plan
from promptgroup_operator.plan.diff import stamped
from promptgroup_operator.world.effects import ConditionChange, Deletion, Event, PodUpdate
from support.builders import NOW, TEXT
from support.passrun import FAULTS, KEY, NAME, TYPED, WARM, WRITES, FailingWriter, Writer, a_deployment, a_group, passes

REFUSED = {"400", "403", "404", "413", "422", "500, an object that does not fit the schema", "500, a webhook"}


@pytest.mark.parametrize("fails", WRITES)
@pytest.mark.parametrize("fault", FAULTS)
def test_whatever_write_fails_and_however_all_others_are_made_and_it_is_told(
    half_warm, reconciler, wanted, fails, fault
):
    cluster = half_warm
    del cluster.objects["PodDisruptionBudget", NAME]
    cluster.tell()
    reconciler._writer.to = writer = FailingWriter(fails, *FAULTS[fault])
    due = passes(reconciler)
    assert wanted[-1] == ["cold"]
    assert due[-1] <= plan.WAITING, "the next pass comes as soon as ever, whatever Retry-After one object has"
    done = " ".join(writer.written)
    assert [each for each in WRITES if each not in (fails, "Secret") and each not in done] == []
    if fails == "Secret":
        return  # routers exchange nothing without it; a line of the log tells it
    ready, degraded = writer.told["Ready"], writer.told["Degraded"]
    if fails != "PromptGroup support":
        assert FAULTS[fault][1] in degraded["message"]
        assert FAULTS[fault][1] in ready["message"]
        assert (ready["status"], degraded["status"]) == ("False", "True")
        assert (writer.told["Accepted"]["status"] == "False") == (fault in REFUSED)
        assert degraded["reason"] == ("ObjectRefused" if fault in REFUSED else "WriteFailed")
        assert any(FAULTS[fault][1] in each.message and each.type == "Warning" for each in writer.events)
    tries = [each for each in writer.tried if each.startswith(fails)]
    assert len(tries) <= (4 if fault == "409" else 2), "it is not repeated with every pass"


def test_while_a_template_is_refused_the_number_of_replicas_is_followed(half_warm, cluster, reconciler):
    cluster.put(a_group(engine={"image": "vllm/vllm-openai:v0.33.0"}, replicas=5))
    cluster.tell()
    reconciler._writer.to = writer = FailingWriter("", 500, TYPED)
    standing = plan.live(reconciler.observe(KEY, NOW), a_deployment())["spec"]["template"]
    applied = []

    def apply(manifest, seen):
        if manifest["kind"] == "Deployment":
            applied.append(manifest)
            if manifest["spec"]["template"] != standing:
                raise ClusterError(TYPED, status=500)

    writer.apply = apply
    passes(reconciler)
    assert next(each["spec"]["replicas"] for each in applied if each["spec"]["template"] == standing) == 5


def test_what_is_written_otherwise_is_tried_at_once(half_warm, cluster, reconciler):
    reconciler._writer.to = writer = FailingWriter("Deployment", 422, "no")
    passes(reconciler)
    before = len(writer.tried)
    cluster.put(a_group(engine={"image": "vllm/vllm-openai:v0.34.0"}))
    cluster.tell()
    writer.fails = "nothing"
    passes(reconciler, 1)
    assert f"Deployment {NAME}" in writer.tried[before:]
    assert "ObjectRefused" not in {each["reason"] for each in writer.told.values()}


def test_a_conflict_now_and_then_is_told_to_nobody(half_warm, reconciler):
    reconciler._writer.to = writer = FailingWriter("Deployment", 409, "the object has been modified")
    with pytest.raises(ClusterError, match="has been modified"):
        reconciler.run(KEY, NOW)
    writer.fails = "nothing"
    reconciler.run(KEY, NOW)
    assert "WriteFailed" not in {each["reason"] for each in writer.told.values()}


def test_no_message_quotes_a_prompt(half_warm, cluster, reconciler, caplog):
    del cluster.objects["PodDisruptionBudget", NAME]
    cluster.tell()
    reconciler._writer.to = writer = FailingWriter("PodDisruptionBudget", 403, f"denied: {TEXT!r}")
    passes(reconciler)
    assert TEXT not in str(writer.told)
    assert TEXT not in caplog.text
    assert "denied" in writer.told["Degraded"]["message"]


@pytest.mark.parametrize("away", [(None, "no answer"), (500, "etcdserver: request timed out"), (429, "too many")])
def test_an_api_server_that_is_away_is_not_asked_for_more(half_warm, reconciler, monkeypatch, away):
    reconciler._writer.to = writer = FailingWriter("", *away)

    def request(*_, **__):
        raise ClusterError(away[1], status=away[0])

    world = reconciler.observe(KEY, NOW)
    monkeypatch.setattr(half_warm, "request", request)
    with pytest.raises(ClusterError):
        reconciler.act(world, plan.decide(world, NOW), NOW)
    assert (len(writer.tried), writer.written, writer.told) == (1, [], {})


BARE, MARKED = ConditionChange("p0", "u0", WARM), ConditionChange("p1", "u1", WARM)
MARK = PodUpdate("p1", "u1", 0, None)
CONFIG, ROUTE = ({"kind": kind, "metadata": {"name": "x"}, "spec": {}} for kind in ("ConfigMap", "PromptRoute"))
GONE, EVENT = Deletion("Deployment", "old", "u"), Event("Normal", "Warm", "all replicas are warm")
TODO = plan.Plan(
    conditions=(BARE, MARKED),
    objects=(CONFIG,),
    pod_updates=(MARK,),
    route=ROUTE,
    deletions=(GONE,),
    status={"warm": "1/1"},
    events=(EVENT,),
)
WRITTEN = ["set_condition", "apply", "update_pod", "apply", "delete", "write_status", "emit_event"]


def acted(cluster, reconciler, writer):
    cluster.tell()
    world = reconciler.observe(KEY, NOW)
    reconciler._writer.to = writer
    reconciler.act(world, TODO, NOW)
    return world


def test_a_plan_is_performed_whole_and_in_order_and_a_slot_comes_with_its_condition(cluster, reconciler):
    writer = Writer()
    world = acted(cluster, reconciler, writer)
    assert writer.calls == [
        ("set_condition", "chat", BARE),
        ("apply", CONFIG, None),
        ("update_pod", "chat", MARK, MARKED, NOW),
        ("apply", ROUTE, None),
        ("delete", "chat", GONE),
        ("write_status", KEY, TODO.status),
        ("emit_event", world.group, EVENT, NOW),
    ]


def test_a_replica_does_not_wait_for_its_slot_until_those_before_it_are_written(cluster, reconciler):
    meet = threading.Barrier(2, timeout=30)
    writer = Writer()
    writer.update_pod = lambda *_: meet.wait()
    cluster.tell()
    world = reconciler.observe(KEY, NOW)
    reconciler._writer.to = writer
    marks = (MARK, PodUpdate("p2", "u2", 1, None))
    reconciler.act(world, replace(TODO, conditions=(), pod_updates=marks), NOW)
    assert ("apply", ROUTE, None) in writer.calls


@pytest.mark.parametrize(("marks", "written"), [((), ["PromptRoute", "ConfigMap"]), ((MARK,), ["PromptRoute"])])
def test_what_is_desired_no_more_is_removed_last_and_by_another_pass_while_replicas_get_slots(
    cluster, reconciler, monkeypatch, marks, written
):
    later = []
    monkeypatch.setattr(reconciler._performer._queue, "add", lambda key, after: later.append((key, after)))
    cluster.tell()
    world = reconciler.observe(KEY, NOW)
    standing = stamped({**CONFIG, "more": "of an earlier release"})
    world = replace(world, live={**world.live, ("ConfigMap", "x"): standing})
    reconciler._writer.to = writer = Writer()
    reconciler.act(world, replace(TODO, objects=(stamped(CONFIG),), pod_updates=marks), NOW)
    assert [call[1]["kind"] for call in writer.calls if call[0] == "apply"] == written
    assert later == ([(KEY, plan.MOVING)] if marks else [])


@pytest.mark.parametrize(("marks", "rest"), [((MARK,), []), ((), ["delete", "write_status", "emit_event"])])
def test_a_pass_ends_with_the_route_where_another_replica_has_become_warm_meanwhile(cluster, reconciler, marks, rest):
    cluster.tell()
    world = reconciler.observe(KEY, NOW)
    reconciler._writer.to = writer = Writer()
    reconciler._performer._queue.add(KEY, ahead=True)
    reconciler.act(world, replace(TODO, conditions=(), pod_updates=marks), NOW)
    names = [call[0] for call in writer.calls]
    assert names == ["apply", *(["update_pod"] if marks else []), "apply", *rest]


def test_what_is_desired_no_more_is_removed_where_a_slot_cannot_be_written(cluster, reconciler):
    cluster.tell()
    world = reconciler.observe(KEY, NOW)
    world = replace(world, live={**world.live, ("ConfigMap", "x"): stamped({**CONFIG, "more": "?"})})
    reconciler._writer.to = writer = FailingWriter("Pod", 403, "no")
    reconciler.act(world, replace(TODO, objects=(stamped(CONFIG),), pod_updates=(MARK,)), NOW)
    assert "ConfigMap x" in writer.written


def test_an_event_that_is_refused_ends_no_pass(cluster, reconciler):
    acted(cluster, reconciler, Writer(len(WRITTEN) - 1))
