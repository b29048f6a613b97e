"""Which kubeconfig is read, by kubectl's rules, and what is said where it cannot be used."""

import logging
import subprocess
import sys

import pytest
import yaml

from promptgroup_cli.base.errors import InputError, ReachError
from promptgroup_cli.base.flags import ClusterChoice
from promptgroup_cli.reach.connect import ClusterConnection
from promptgroup_cli.reach.kubeconfig import default_namespace, find_kubeconfig
from promptgroup_operator.base.settings import Settings
from support.rawobjects import serving


def written(path, *contexts, user=None, current="a"):
    """A kubeconfig with these contexts, each with its name as namespace."""
    content = {
        "clusters": [{"name": "c", "cluster": {"server": "https://127.0.0.1:1"}}],
        "users": [{"name": "u", "user": user or {"token": "t"}}],
        "contexts": [{"name": each, "context": {"cluster": "c", "user": "u", "namespace": each}} for each in contexts],
        "current-context": current,
    }
    path.write_text(yaml.safe_dump(content))
    return str(path)


def test_the_flag_comes_before_the_environment(tmp_path, monkeypatch):
    monkeypatch.setenv("KUBECONFIG", written(tmp_path / "one", "a"))
    other = written(tmp_path / "other", "a", "b")
    assert find_kubeconfig(ClusterChoice(), Settings()).paths == str(tmp_path / "one")
    assert find_kubeconfig(ClusterChoice(kubeconfig=other), Settings()).paths == other
    with ClusterConnection(ClusterChoice(context="b", kubeconfig=other)) as cluster:
        assert (cluster.namespace, cluster.kubectl) == ("b", f"kubectl --kubeconfig {other} --context b")


def test_the_namespace_is_that_of_the_kubeconfig_or_the_pods_own(tmp_path, monkeypatch):
    settings = Settings(service_account_dir=tmp_path)
    monkeypatch.setenv("KUBECONFIG", str(tmp_path / "none"))
    assert default_namespace(settings, "", "") == "default"
    (tmp_path / "namespace").write_text("mine")
    assert default_namespace(settings, "", "") == "mine"
    monkeypatch.setenv("KUBECONFIG", written(tmp_path / "one", "a", "b"))
    assert default_namespace(settings, "", "") == "a"
    assert default_namespace(settings, "", "b") == "b"
    assert default_namespace(settings, written(tmp_path / "other", "a"), "") == "a"


def test_contexts_of_all_files_of_the_environment_can_be_named(tmp_path, monkeypatch):
    monkeypatch.setenv("KUBECONFIG", f"{written(tmp_path / 'one', 'a')}:{written(tmp_path / 'two', 'prod')}")
    with ClusterConnection(ClusterChoice(context="prod")) as cluster:
        assert cluster.namespace == "prod"


def test_a_flag_that_names_no_file_does_not_fall_back(tmp_path, monkeypatch):
    monkeypatch.setenv("KUBECONFIG", written(tmp_path / "one", "a"))
    with pytest.raises(InputError, match="no kubeconfig at /none"):
        find_kubeconfig(ClusterChoice(kubeconfig="/none"), Settings())


def test_in_a_pod_the_service_account_is_used_unless_a_flag_names_a_context(tmp_path, monkeypatch):
    monkeypatch.delenv("KUBECONFIG", raising=False)
    monkeypatch.setenv("HOME", str(tmp_path))
    (tmp_path / "token").write_text("t")
    settings = Settings(service_account_dir=tmp_path)
    assert find_kubeconfig(ClusterChoice(), settings).paths == ""
    with pytest.raises(InputError, match="no kubeconfig"):
        find_kubeconfig(ClusterChoice(context="a"), settings)


def test_an_unknown_context_is_one_line_that_lists_those_that_there_are(command, tmp_path, monkeypatch):
    monkeypatch.setenv("KUBECONFIG", written(tmp_path / "one", "staging", "prod"))
    status, out, err = command("status", "--context", "prdo")
    assert (status, out, err.count("\n")) == (2, "", 1)
    assert "whose contexts are staging, prod, did you mean prod?" in err


def test_a_command_line_that_is_printed_names_the_same_cluster(kube, command):
    serving(kube)
    status, _, err = command("top", "--once", "--context", "x")
    assert (status, "`kubectl --context x apply -k manifests/router -n chat`" in err) == (3, True)


@pytest.mark.heavy
def test_an_exec_that_is_missing_is_named(tmp_path):
    user = {"exec": {"apiVersion": "client.authentication.k8s.io/v1", "command": "aws-iam-nothere"}}
    file = written(tmp_path / "eks", "a", user=user)
    # as a process: the client library writes a line of its own where no handler of the test listens
    command = [sys.executable, "-m", "promptgroup_cli", "status", "--kubeconfig", file]
    ran = subprocess.run(command, capture_output=True, text=True, check=False, timeout=60)
    assert (ran.returncode, ran.stdout, ran.stderr.count("\n")) == (2, "", 1)
    assert f"{file}: the program 'aws-iam-nothere' of the kubeconfig's `exec`" in ran.stderr
    assert "install it" in ran.stderr


def test_an_exec_that_fails_is_told_once(tmp_path, monkeypatch):
    user = {
        "exec": {
            "apiVersion": "client.authentication.k8s.io/v1",
            "command": "/bin/sh",
            "args": ["-c", "echo expired >&2; exit 3"],
        }
    }
    with pytest.raises(ReachError, match=r"no credentials \(exec: process returned 3. expired\): log in again"):
        ClusterConnection(ClusterChoice(kubeconfig=written(tmp_path / "eks", "a", user=user)))
    root = logging.getLogger()
    assert not any(type(each).__name__ == "_Listener" for each in root.handlers)
