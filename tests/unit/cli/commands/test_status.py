import json
from functools import partial

import pytest

from support.rawobjects import condition, engine, promptgroup, promptroute, serving
from support.scriptedkube import refusal


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
