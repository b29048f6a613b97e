import random
import socket

from promptgroup_local import ports
from promptgroup_local.ports import free_ports


def test_ports_are_free_different_and_never_those_of_connections():
    found = free_ports(200)
    assert len(set(found)) == 200
    lowest = int(ports._CONNECTIONS.read_text().split()[0])
    assert all(ports.LOWEST <= each < min(ports.HIGHEST, lowest) for each in found)
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
