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


@pytest.mark.parametrize("networks", ["127.64.0.1/10", "everything", "10.0.0.0/33"])
def test_a_network_that_is_none_is_refused_by_flag_and_value(networks, capsys):
    with pytest.raises(SystemExit):
        parse(["--namespaces=chat", f"--allow-networks={networks}"], {"KUBERNETES_SERVICE_HOST": "10.0.0.1"})
    said = capsys.readouterr().err
    assert "--allow-networks" in said
    assert networks in said
