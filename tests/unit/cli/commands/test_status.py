import argparse
import json
from functools import partial

import pytest

from promptgroup_cli.base.text import WIDTH
from promptgroup_cli.commands.status import add, document, table
from promptgroup_cli.reach.group_status import group_status
from support.rawobjects import FULL, SHORT, condition, engine, promptgroup, promptroute, serving
from support.scriptedkube import refusal


def parsed(*words):
    parser = argparse.ArgumentParser()
    add(parser)
    return parser.parse_args(words)


def test_one_namespace_or_all_of_them():
    with pytest.raises(SystemExit):
        parsed("-A", "-n", "chat")


def test_all_groups_of_the_contexts_namespace_unless_it_is_said():
    found = parsed()
    assert (found.name, found.namespace, found.all_namespaces, found.output) == (None, None, False, "table")


@pytest.fixture
def status(command):
    return partial(command, "status")


def test_one_group_with_its_slots(kube, status):
    serving(kube, promptgroup(), promptroute((0, "Ready", "p0")), engine("p0"), engine("x0", of="sales"))
    code, out, _ = status("support")
    assert code == 0
    assert "chat/support" in out
    assert "p0" in out
    assert "x0" not in out


def test_groups_of_all_namespaces_of_which_one_is_not_ready(kube, status):
    unready = promptgroup("sales", condition("Ready", "False", "Warming"), namespace="shop")
    serving(kube, promptgroup(), unready, promptgroup("support", namespace="shop"))
    code, out, _ = status("-A")
    assert code == 1
    assert [line.split()[:3] for line in out.splitlines()[1:]] == [
        ["chat", "support", "True"],
        ["shop", "sales", "False"],
        ["shop", "support", "True"],
    ]
    code, out, _ = status("-n", "shop", "-o", "json")
    assert [each["name"] for each in json.loads(out)["groups"]] == ["sales", "support"]
    assert code == 1


def test_no_groups(kube, status):
    serving(kube)
    assert status() == (0, "", "no PromptGroups in namespace chat\n")
    assert status("-A")[2] == "no PromptGroups in any namespace\n"


def test_a_group_that_is_not_there(kube, status):
    serving(kube, promptgroup())
    code, out, err = status("sales")
    assert (code, out) == (2, "")
    assert "no PromptGroup sales in namespace chat: `promptgroup status -A`" in err


def test_a_cluster_that_refuses(kube, status):
    kube.answers = [refusal(403, "you cannot")]
    code, out, err = status()
    assert (code, out, err.count("\n")) == (3, "", 1)
    assert "you cannot" in err


def test_help_has_the_exit_status(status, capsys):
    with pytest.raises(SystemExit):
        status("--help")
    assert "0  every group shown is Ready for its present spec" in capsys.readouterr().out


COLD = {"status": "False", "reason": "Warming", "message": "the prefix is being sent"}
UNWARM = condition("PrefixWarm", "False", "Warming", "1 of 2 replicas are warm")
THRASHING = condition("CacheEffective", "False", "Thrashing", "the KV cache is too small " * 6)


def one():
    group = promptgroup("support", UNWARM, condition("Ready", "False", "Warming"), THRASHING)
    group["spec"]["sizing"] = {"minReplicas": 2, "maxReplicas": 8}
    group["status"]["conditions"].append(condition("ScalingActive", "True", "Utilisation", "busy for 70 %"))
    return group_status(group, promptroute((0, "Ready", "p0"), (1, "Absent", "")), [engine("p0"), engine("p1", COLD)])


def test_one_group_has_all_that_is_known():
    text = table([one()], namespaces=False)
    lines = text.splitlines()
    assert lines[:3] == [
        "Group:        chat/support (model llama)",
        "Not ready:    1 of 2 replicas are warm (Warming)",
        "Note:         Caches do not hold what prompts repeat: the KV cache is too small the KV cache is too",
    ]
    assert "Sizing:       2 replicas (min 2, max 8); busy for 70 % (Utilisation)" in text
    assert f"{SHORT}   Serving   100" in text
    assert [line.split() for line in lines[-3:]] == [
        [SHORT, "0", "p0", "Ready", "True", "PrefixCached"],
        [SHORT, "1", "-", "Absent", "-", "-"],
        [SHORT, "-", "p1", "Cold", "False", "Warming:", "the", "prefix", "is", "being", "sent"],
    ]
    assert all(len(line) <= WIDTH for line in lines)


def test_the_adapter_of_a_group_is_told():
    group = promptgroup("support")
    group["spec"]["adapter"] = {"name": "tone", "source": {"folder": "tone/v1"}}
    found = group_status(group, None, ())
    assert table([found], namespaces=False).startswith("Group:        chat/support (model llama, adapter tone)\n")
    assert json.loads(document([found]))["groups"][0]["adapter"] == "tone"


def test_the_aliases_of_a_model_are_told():
    group = promptgroup("support")
    group["spec"]["modelAliases"] = ["gpt-4o", "l8"]
    found = group_status(group, None, ())
    assert table([found], namespaces=False).startswith("Group:        chat/support (model llama, also gpt-4o, l8)\n")
    assert json.loads(document([found]))["groups"][0]["modelAliases"] == ["gpt-4o", "l8"]


def test_the_host_of_a_guest_is_told():
    group = promptgroup("support")
    group["spec"]["engineFrom"] = {"promptGroup": "pool"}
    found = group_status(group, None, ())
    assert "a guest on replicas of PromptGroup pool" in " ".join(table([found], namespaces=False).split())
    assert json.loads(document([found]))["groups"][0]["engineFrom"] == "pool"


def test_a_number_that_is_held_is_told_once():
    group = promptgroup("support", condition("ScalingActive", "False", "FailedGetMetrics", "held at 3"))
    group["spec"]["sizing"] = {"minReplicas": 2, "maxReplicas": 8}
    found = group_status(group, None, ())
    assert table([found], namespaces=False).count("held at 3") == 1
    assert json.loads(document([found]))["groups"][0]["notes"][0]["condition"] == "ScalingActive"


def test_replicas_of_an_old_revision_are_told_apart_from_those_that_were_sized():
    fixed = condition("ScalingActive", "False", "FixedReplicas", "spec.replicas asks for 2")
    serving = {"fingerprint": FULL, "phase": "Serving", "weight": 100, "replicas": 2, "warm": 2, "ready": 2}
    old = serving | {"fingerprint": "89f7e0d8" * 4, "phase": "Superseded", "weight": 0, "replicas": 1}
    found = group_status(promptgroup("support", fixed, replicas=3, revisions=[serving, old]), None, ())
    text = table([found], namespaces=False)
    assert "Replicas:     3 (2/2 warm)\n" in text
    said = "2 replicas; spec.replicas asks for 2 (FixedReplicas); 1 more of the old revision 89f7e0d8"
    assert f"Sizing: {said}" in " ".join(text.split())


def test_replicas_that_start_are_told_with_their_phase():
    took = {"pending": 1, "scheduled": 0, "pulling": 12, "loading": 40, "warming": 2}
    group = promptgroup("support")
    group["status"]["start"] = {"seconds": 55, "latestSeconds": [55], "phaseSeconds": took}
    found = group_status(group, None, [engine("p1", COLD)])
    text = table([found], namespaces=False)
    assert "Starting:     p1: Warming" in text
    assert "Starts:       55 s; the latest: pending 1 s, scheduled 0 s, pulling 12 s, loading 40 s, warming 2 s" in text
    (shown,) = json.loads(document([found]))["groups"]
    assert shown["starting"] == [{"pod": "p1", "phase": "Warming", "seconds": None}]
    assert shown["start"]["seconds"] == 55


def test_nodes_that_have_the_weights_are_counted():
    group = promptgroup("support")
    assert "Weights" not in table([group_status(group, None, ())], namespaces=False)
    group["status"]["prefetch"] = {"nodes": 4, "ready": 3}
    found = group_status(group, None, ())
    assert "Weights:      on 3 of 4 nodes\n" in table([found], namespaces=False)
    (shown,) = json.loads(document([found]))["groups"]
    assert shown["prefetch"] == {"nodes": 4, "ready": 3}


def test_several_groups_have_a_line_each_with_what_comes_first():
    other = group_status(promptgroup("sales", THRASHING, hitRate=None), None, ())
    lines = table([one(), other], namespaces=True).splitlines()
    assert " ".join(lines[0].split()) == "NAMESPACE NAME READY REVISION WARM REPLICAS HIT RATE STATUS"
    assert lines[1].endswith("93%        Not every replica is warm (Warming)")
    assert lines[2].endswith("-          Caches do not hold what prompts repeat (Thrashing)")
    assert not table([one(), other], namespaces=False).startswith("NAMESPACE")


def test_the_document_has_everything():
    (found,) = json.loads(document([one()]))["groups"]
    assert (found["namespace"], found["name"], found["ready"], found["hitRate"]) == ("chat", "support", False, 0.93)
    assert found["sizing"] == {"min": 2, "max": 8, "reason": "Utilisation", "message": "busy for 70 %"}
    assert [each["reason"] for each in found["waitsFor"]] == ["Warming"]
    assert [each["condition"] for each in found["notes"]] == ["CacheEffective"]
    (revision,) = found["revisions"]
    assert (revision["fingerprint"], revision["phase"]) == (FULL, "Serving")
    assert revision["slots"][1] == {
        "slot": 1, "pod": None, "state": "Absent", "warm": None, "reason": None, "message": None,
    }  # fmt: skip


def test_a_group_that_nobody_has_looked_at():
    found = group_status(promptgroup() | {"status": {}}, None, ())
    assert "No operator has seen this group yet" in table([found], namespaces=False)
    (shown,) = json.loads(document([found]))["groups"]
    assert (shown["hitRate"], shown["revision"], shown["revisions"]) == (None, None, [])


def test_the_first_line_says_who_serves_during_a_release():
    group = promptgroup()
    one = group["status"]["revisions"][0]
    other = {**one, "fingerprint": "b" * 32, "weight": 20, "ready": 1, "replicas": 1}
    group["status"]["revisions"] = [{**other}, {**one, "weight": 80, "ready": 2, "replicas": 2}]
    first = table([group_status(group, None, ())], namespaces=False).splitlines()[0]
    assert first.endswith(f", served by bbbbbbbb (20 %) and {SHORT} (80 %)")
    group["status"]["revisions"] = [{**other, "ready": 0}, {**one, "weight": 80, "ready": 0, "replicas": 2}]
    assert ", served by nobody" in table([group_status(group, None, ())], namespaces=False).splitlines()[0]
