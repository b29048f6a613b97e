import itertools
import json
import threading
from datetime import UTC, datetime

import pytest

from promptgroup_cli.base.errors import ReachError
from promptgroup_cli.base.flags import ClusterChoice
from promptgroup_cli.dashboard.observer import DashboardObserver
from promptgroup_cli.dashboard.past import DashboardPast
from promptgroup_cli.reach.connect import ClusterConnection
from promptgroup_router.base.metrics import Metrics
from promptgroup_router.explain import explain_with_table, parse_explain_request
from support.rawobjects import FULL, engine, promptgroup, promptroute, router, serving
from support.scriptedkube import Answer
from support.tables import SYSTEM, group, table

NOW = datetime(2026, 11, 22, 14, tzinfo=UTC)
LOAD = {"inFlight": 1, "waitSeconds": 0.0, "liveSessions": 3, "liveTokens": 10, "kvTokens": 100}
TABLE = {
    "groups": [{"namespace": "chat", "name": "support", "model": "llama", "revisions": []}],
    "replicas": {f"chat/support/{FULL}/0": LOAD},
    "moves": [],
}
OBJECTS = (promptgroup(), promptroute((0, "Ready", "pod-0")), engine("pod-0"), router("r1"))


def answering(**answers):
    """A router that answers by path; a text is an error."""
    told = {
        "/metrics": Metrics().text().encode(),
        "/table": json.dumps(TABLE).encode(),
        "/unmatched": b'{"unmatched": []}',
    }
    told |= {f"/{name}": answer for name, answer in answers.items()}

    def ask(path, body):
        answer = told[path]
        if isinstance(answer, str):
            raise ReachError(answer)
        return answer(body) if callable(answer) else answer

    return ask


def observer(cluster=None, routers=None, namespace="chat"):
    return DashboardObserver(cluster, routers, namespace=namespace, interval=0.01, now=NOW)


def looked(seen, times=1):
    clock = itertools.count(1.0)
    for _ in range(times):
        seen.look(lambda: NOW, lambda: next(clock))
    return seen


def test_a_cluster_and_its_routers_are_seen(kube):
    serving(kube, *OBJECTS, metrics=Metrics().text(), table=TABLE, unmatched={"unmatched": []})
    with ClusterConnection(ClusterChoice()) as cluster:
        told = json.loads(looked(observer(cluster), 2).view(""))
    assert (told["number"], told["routers"], told["namespace"]) == (2, ["r1"], "chat")
    (revision,) = told["group"]["revisions"]
    assert [(each["slot"], each["warm"], each["sessions"]) for each in revision["slots"]] == [(0, "warm", 3)]
    kinds = " ".join(told["problems"])  # this API server has neither
    assert "Deployment" in kinds or "deployments" in kinds
    assert "Event" in kinds or "events" in kinds


@pytest.mark.parametrize(("engine", "asked"), [({"nodes": 2}, True), ({"nodes": 1}, False), ({}, False)])
def test_leader_worker_sets_are_asked_for_where_a_group_has_several_nodes(kube, engine, asked):
    group = promptgroup()
    group["spec"]["engine"] |= engine
    serving(kube, group, router("r1", ready="False"))
    with ClusterConnection(ClusterChoice()) as cluster:
        told = json.loads(looked(observer(cluster)).view(""))
    assert any("LeaderWorkerSet" in each for each in told["problems"]) == asked  # this API server has none


def test_groups_are_shown_while_no_router_is_ready(kube):
    serving(kube, promptgroup(), router("r1", ready="False"))
    with ClusterConnection(ClusterChoice()) as cluster:
        told = json.loads(looked(observer(cluster)).view(""))
    assert [each["label"] for each in told["groups"]] == ["chat/support"]
    assert any("no router is ready in namespace chat" in each for each in told["problems"])


def test_routers_alone_are_enough():
    told = json.loads(looked(observer(routers={"r1": answering(), "r2": answering(table="r2 is silent")})).view(""))
    assert (told["routers"], told["problems"]) == (["r1"], ["r2 is silent"])
    assert told["groups"][0]["state"] == "Unknown"


def test_without_any_answer_there_is_nothing_to_show():
    with pytest.raises(ReachError, match="silent"):
        looked(observer(routers={"r1": answering(metrics="r1 is silent")}))
    with pytest.raises(ReachError, match="nothing was read"):
        observer(routers={}).view("")


def test_a_router_that_answers_nonsense_is_a_problem_and_no_end():
    routers = {"r1": answering(), "r2": answering(table=b'{"replicas": 3}'), "r3": answering(metrics=b"\xff")}
    told = json.loads(looked(observer(routers=routers)).view(""))
    assert told["routers"] == ["r1"]
    assert sorted(each[:9] for each in told["problems"]) == ["router r2", "router r3"]


def test_it_looks_until_it_is_stopped_and_says_what_went_wrong():
    asks, stopped = itertools.count(), threading.Event()

    def ask(path, body):
        number = next(asks)
        if number > 12:
            stopped.set()
        if 3 <= number < 9:
            raise ReachError("r1 is silent")
        return answering()(path, body)

    seen = looked(observer(routers={"r1": ask}))
    problems = []
    look = seen.look

    def noting(*arguments):
        try:
            return look(*arguments)
        finally:
            problems.append(json.loads(seen.view(""))["problems"])

    seen.look = noting
    seen.run(stopped, lambda: NOW, itertools.count(100.0).__next__)
    assert problems[-1] == []
    assert json.loads(seen.view(""))["routers"] == ["r1"]
    assert ["r1 is silent"] in problems


def test_a_failed_look_keeps_what_was_seen_of_the_cluster(kube):
    serving(kube, *OBJECTS, metrics=Metrics().text(), table=TABLE, unmatched={"unmatched": []})
    stopped = threading.Event()
    with ClusterConnection(ClusterChoice()) as cluster:
        seen = looked(observer(cluster))

        def gone(method, path):
            stopped.set()
            return Answer(cut=True)

        kube.serve = gone
        seen.run(stopped, lambda: NOW, lambda: 5.0)
        told = json.loads(seen.view(""))
    assert [each["label"] for each in told["groups"]] == ["chat/support"]
    assert len(told["problems"]) == 2
    assert "the API server does not answer" in told["problems"][0]


def test_a_prometheus_is_asked_for_the_group_that_somebody_looks_at():
    asked = []
    past = DashboardPast(lambda query, *_: asked.append(query) or {1: 0.5})
    seen = DashboardObserver(None, {"r1": answering()}, namespace="chat", interval=0.01, now=NOW, past=past)
    looked(seen)
    assert asked == []
    seen.view("")
    seen.look(lambda: NOW, lambda: 50.0)
    assert all('group="chat/support"' in each for each in asked)
    assert json.loads(seen.view(""))["group"]["series"]["hitRate"][0] == 0.5


# --- a request that is explained -------------------------------------------------------------------------------------


def explaining(question):
    return explain_with_table(table(group("support")), parse_explain_request(question))


def test_a_request_is_explained_by_a_router():
    seen = looked(observer(routers={"r1": answering(explain=explaining)}))
    body = json.dumps(
        {"model": "llama", "messages": [{"role": "system", "content": SYSTEM}, {"role": "user", "content": "Hi"}]}
    )
    told = json.loads(seen.explain(body, {"x-session-id": "7"}))
    facts = dict(told["facts"])
    assert (told["by"], told["refused"]) == ("router r1", False)
    assert facts["Group"].startswith("chat/support (model llama), matched by its system prompt")
    assert "named by header x-session-id" in facts["Session"]
    assert told["rows"][0][:3] == ["REPLICA", "RING", "STATE"]
    assert told["rows"][1][0] == told["choice"]


def test_of_several_namespaces_a_router_of_the_one_that_is_looked_at_explains():
    routers = {"a/r1": answering(explain=b"{}"), "chat/r1": answering(explain=explaining)}
    seen = looked(observer(routers=routers, namespace=""))
    seen._looked_at = "chat/support"
    assert json.loads(seen.explain("{", {}))["by"] == "router chat/r1"


def test_a_refusal_is_an_answer():
    told = json.loads(looked(observer(routers={"r1": answering(explain=explaining)})).explain("{", {}))
    assert (told["refused"], told["rows"], told["choice"]) == (True, [], None)
    assert dict(told["facts"])["Refused"].startswith("400")


@pytest.mark.parametrize("answer", [b"<html>", b"{}", b'{"refusal": null}', b'{"refusal": 3}', "r1 is silent"])
def test_an_answer_that_is_none_is_one_line(answer):
    with pytest.raises(ReachError, match="r1"):
        looked(observer(routers={"r1": answering(explain=answer)})).explain("{}", {})


def test_without_a_router_nothing_is_explained():
    with pytest.raises(ReachError, match="no router is ready"):
        observer(routers={}).explain("{}", {})
