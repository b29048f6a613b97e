import random
import socket

import pytest

from promptgroup_local import ports
from promptgroup_local.ports import free_ports


@pytest.mark.parametrize(
    ("connections", "end"),
    [
        ("32768\t60999\n", ports.HIGHEST),
        ("16000\t65535\n", 16000),
        ("1024\t65535\n", ports.HIGHEST),  # no room is left below
        ("", ports.HIGHEST),
        (None, ports.HIGHEST),
    ],
)
def test_ports_are_different_and_not_those_of_connections(connections, end, tmp_path, monkeypatch):
    monkeypatch.setattr(ports, "_CONNECTIONS", tmp_path / "range")
    if connections is not None:
        ports._CONNECTIONS.write_text(connections)
    found = free_ports(200)
    assert len(set(found)) == 200
    assert all(ports.LOWEST <= each < end for each in found)


def test_ports_that_are_given_out_are_free():
    found = free_ports(1)
    with socket.create_server(("127.0.0.1", found[0])), socket.socket(type=socket.SOCK_DGRAM) as other:
        other.bind(("127.0.0.1", found[0]))


def test_a_port_that_is_taken_is_not_given_out(monkeypatch):
    with socket.socket(type=socket.SOCK_DGRAM) as taken:
        (port, other) = free_ports(2)
        taken.bind(("127.0.0.1", port))
        chosen = iter([port, port, other])
        monkeypatch.setattr(ports._CHOOSER, "randrange", lambda *_: next(chosen))
        assert free_ports(1) == [other]


def test_processes_that_seed_alike_get_different_ports():
    found = []
    for _ in range(2):
        random.seed(0)
        found.append(tuple(free_ports(5)))
    assert found[0] != found[1]
