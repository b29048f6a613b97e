from pathlib import Path

import pytest

from promptgroup_router.base.core_settings import PeerName
from promptgroup_router.base.settings import parse

IN_A_POD = {"KUBERNETES_SERVICE_HOST": "10.0.0.1", "KUBERNETES_SERVICE_PORT": "6443"}


def test_other_routers_are_named_by_host_or_by_host_and_port():
    names = "router-peers, 10.0.0.1:7000,router-peers,::1,[::1],[::1]:7001,"
    found = parse(["--table", "t", "--peers", names, "--peer-key-file", "k"], {})
    assert found.peers == (
        PeerName("router-peers"),
        PeerName("10.0.0.1", 7000),
        PeerName("::1"),
        PeerName("::1", 7001),
    )
    assert (found.peer_key_file, found.peer_port, found.peer_ports, found.peer_tick) == (Path("k"), 9094, 8, 0.05)
    assert parse(["--table", "t"], {}).peers == ()


PEERS = ["--table", "t", "--peer-key-file", "k", "--peers"]


def test_networks_of_replicas_that_no_cluster_has_are_named_one_by_one(tmp_path):
    environment = {"KUBERNETES_SERVICE_HOST": "10.0.0.1"}
    found = parse(["--namespaces=chat", "--allow-networks=127.64.0.0/10, fe80::/10"], environment)
    assert [str(each) for each in found.source.allowed_networks] == ["127.64.0.0/10", "fe80::/10"]
    assert parse(["--namespaces=chat"], environment).source.allowed_networks == ()


def test_paths_that_are_passed_on_are_named_one_by_one():
    assert parse(["--table", "t"], {}).pass_paths == ()
    found = parse(["--table", "t", "--pass-paths", "/v1/a, /b-c_d.e~f,/v1/a"], {})
    assert found.pass_paths == ("/v1/a", "/b-c_d.e~f")
    assert parse(["--table", "t"], {"PROMPTGROUP_ROUTER_PASS_PATHS": "/v1/a"}).pass_paths == ("/v1/a",)


@pytest.mark.parametrize(
    "paths", ["v1/a", "/", "/a?b", "/a//b", "/a/", "/../a", "/a/./b", "/a b", "/%61", "http://e/a", "/" + "a" * 256]
)
def test_a_path_that_is_none_is_refused_by_flag_and_value(paths, capsys):
    with pytest.raises(SystemExit):
        parse(["--table", "t", "--pass-paths", paths], {})
    said = capsys.readouterr().err
    assert "--pass-paths" in said
    assert paths in said


def test_paths_are_bounded(capsys):
    with pytest.raises(SystemExit):
        parse(["--table", "t", "--pass-paths", ",".join(f"/a{number}" for number in range(65))], {})
    assert "64 at most" in capsys.readouterr().err


@pytest.mark.parametrize("networks", ["127.64.0.1/10", "everything", "10.0.0.0/33"])
def test_a_network_that_is_none_is_refused_by_flag_and_value(networks, capsys):
    with pytest.raises(SystemExit):
        parse(["--namespaces=chat", f"--allow-networks={networks}"], {"KUBERNETES_SERVICE_HOST": "10.0.0.1"})
    said = capsys.readouterr().err
    assert "--allow-networks" in said
    assert networks in said
