import json

from promptgroup_cli.dashboard.release_view import ReleaseStep, release_view, released, step_of
from promptgroup_contract.fingerprint import short
from promptgroup_operator.world.samples import Stratum
from support.dashboards import BEGAN, CODE_NEW, CODE_OLD, cluster, counters

NEW, OLD = short(CODE_NEW), short(CODE_OLD)


def code():
    return next(each for each in cluster().groups if each["metadata"]["name"] == "code")


def totals():
    _, counts = counters(100)
    return {revision: sum(sample.values(), Stratum()) for revision, sample in counts.samples.items()}


def test_the_steps_and_both_revisions():
    found = release_view(code(), cluster().deployments, BEGAN, totals())
    assert [(each["weight"], each["state"]) for each in found["steps"]] == [
        (10, "done"),
        (30, "current"),
        (60, "ahead"),
    ]
    assert (found["stepSince"], found["countedSince"]) == ("2026-11-22T14:09:00Z", "2026-11-22T14:00:00Z")
    new, old = found["revisions"]
    assert (new["role"], new["revision"], new["weight"], new["requests"]) == ("new", NEW, 30, 190)
    assert (old["role"], old["revision"], old["weight"], old["requests"]) == ("old", OLD, 70, 430)
    assert new["ttftP50"] > old["ttftP50"]
    assert (new["failed"], round(old["failed"], 6)) == (0, 0.001)
    assert 0.9 < new["hitRate"] < 1


def test_the_opinion_is_what_the_operator_says():
    opinion = release_view(code(), cluster().deployments, BEGAN, totals())["opinion"]
    assert opinion["reason"] == "Undecided"
    assert "is not significant" in opinion["message"]


def test_a_revision_that_was_rolled_back_says_why_and_where():
    group, (deployment,) = code(), cluster().deployments
    group["status"]["revisions"][0]["phase"] = "RolledBack"
    mark = {"at": "2026-11-22T14:12:00Z", "settings": "s", "reason": "ErrorRate", "message": "9.0% of requests failed"}
    deployment["metadata"]["annotations"]["promptgroup.dev/rolled-back"] = json.dumps(mark)
    found = release_view(group, (deployment,), BEGAN, totals())
    assert [each["state"] for each in found["steps"]] == ["done", "failed", "ahead"]
    assert found["opinion"] == {"reason": "ErrorRate", "message": "9.0% of requests failed"}


def test_without_requests_nothing_is_known():
    new, _ = release_view(code(), cluster().deployments, BEGAN, {})["revisions"]
    assert (new["requests"], new["failed"], new["ttftP50"], new["hitRate"]) == (0, None, None, None)


def test_no_release_is_shown_where_there_is_none():
    support = next(each for each in cluster().groups if each["metadata"]["name"] == "support")
    assert (released(support), step_of(support, ()), release_view(support, (), BEGAN, {})) == (None, None, None)
    first = code()
    first["status"]["revisions"] = [first["status"]["revisions"][0]]
    assert released(first) is None  # nothing serves beside it


def test_a_release_without_its_deployment_is_at_its_first_step():
    found = release_view(code(), (), BEGAN, totals())
    assert [each["state"] for each in found["steps"]] == ["current", "ahead", "ahead"]
    assert found["stepSince"] is None


def test_the_end_of_a_release_continues_its_last_step_alone():
    at = ReleaseStep("a", "1", "t", ended=False)
    assert ReleaseStep("a", "", "", ended=True).continues(at)
    assert not ReleaseStep("b", "", "", ended=True).continues(at)
    assert not ReleaseStep("a", "2", "t", ended=False).continues(at)
