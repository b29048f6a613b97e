"""The exchange over real sockets on loopback."""

import asyncio
import errno
import os
import secrets
import socket
import time
from typing import Self

import pytest

from promptgroup_router.base.core_settings import PeerName
from promptgroup_router.base.metrics import Metrics
from promptgroup_router.peers import discovery, transport
from promptgroup_router.peers.datagram import Datagram, DatagramKind, encode, seal_key
from promptgroup_router.peers.transport import GossipTransport
from support.fakeengine import until
from support.peers import Listener, load, placement
from support.wire import run, settings_for

SECRET = os.urandom(32)
"""Makes strangers of tests that run at the same time and meet in a range of ports."""
RANGES = range(20_000, 32_000, 16)
"""Below the ports that the kernel gives away; where one is taken, the next of the range will do."""


class Routers:
    """Processes of one machine, as far as the exchange goes."""

    def __init__(self, folder) -> None:
        self.key_file = folder / "key"
        self.key_file.write_bytes(SECRET)
        self.ports = secrets.choice(RANGES)
        self._tasks: dict[GossipTransport, asyncio.Task] = {}

    def add(self, *records, **settings) -> tuple[GossipTransport, Listener, Metrics]:
        fields = {"peers": (PeerName("127.0.0.1"),), "peer_port": self.ports, **settings}
        listener, metrics = Listener(*records), Metrics()
        one = GossipTransport(settings_for(self.key_file, **fields), self.key_file, listener, metrics, time.monotonic)
        self._tasks[one] = asyncio.ensure_future(one.run())
        return one, listener, metrics

    async def stop(self, one: GossipTransport) -> None:
        task = self._tasks.pop(one)
        task.cancel()
        await asyncio.gather(task, return_exceptions=True)
        one.close()

    async def __aenter__(self) -> Self:
        return self

    async def __aexit__(self, *_) -> None:
        for one in list(self._tasks):
            await self.stop(one)


def live(metrics: Metrics) -> float:
    return metrics.peers.values[()]


def problems(caplog) -> list[str]:
    """What was complained of."""
    return [record.fields["problem"] for record in caplog.records if "problem" in getattr(record, "fields", {})]


@pytest.fixture
def quick(monkeypatch):
    """Once a second is too seldom for a test."""
    monkeypatch.setattr(transport, "KEY_EVERY_SECONDS", 0.02)
    monkeypatch.setattr(transport, "LOOKUP_EVERY_SECONDS", 0.05)


def test_three_processes_on_one_machine_share_a_range_and_tell_each_other(tmp_path):
    async def check():
        async with Routers(tmp_path) as routers:
            (one, told, sums), (two, heard, _), (three, also, _) = routers.add(), routers.add(), routers.add()
            assert one.port < two.port < three.port
            await until(lambda: live(sums) == 2, "two peers")
            told.place(placement(7, turn=3))
            told.loads = [load(5, written=10)]
            for each in (heard, also):
                await until(lambda each=each: each.peers and each.locations, "notes and loads")
                assert each.locations == {7: placement(7, turn=3)}
                assert list(each.peers.values()) == [{5: load(5, written=10)}]
            assert sums.peer_datagrams.values["sent",] > 0
            assert sums.peer_bytes.values["received",] > 0
            assert sums.peer_notes.values["sent",] >= 2

    run(check())


def test_what_is_urgent_does_not_wait_for_the_next_tick(tmp_path):
    async def check():
        async with Routers(tmp_path) as routers:
            (one, told, _), (_, heard, _) = routers.add(peer_tick=3600.0), routers.add()
            await until(one.others, "a peer")
            told.loads = [load(5, written=10)]
            told.urgent()
            await until(lambda: heard.peers, "the load")
            assert list(heard.peers.values()) == [{5: load(5, written=10)}]

    run(check())


@pytest.mark.heavy
def test_one_that_starts_copies_and_one_that_stops_is_forgotten(tmp_path, monkeypatch):
    monkeypatch.setattr("promptgroup_router.peers.members.SILENT_SECONDS", 5.0)

    async def check():
        async with Routers(tmp_path) as routers:
            routers.add(*(placement(each) for each in range(1000)))
            second, _, _ = routers.add()
            _, listener, metrics = routers.add()
            await until(lambda: len(listener.locations) == 1000, "the records")
            await until(lambda: live(metrics) == 2, "two peers")
            await routers.stop(second)
            await until(lambda: live(metrics) == 1, "one of them to be forgotten")
            assert len(listener.forgotten) == 1

    run(check())


def test_a_key_that_comes_late_changes_or_goes_is_followed(tmp_path, quick, caplog):

    async def check():
        async with Routers(tmp_path) as routers:
            routers.key_file.unlink()
            _, _, one = routers.add()
            _, _, two = routers.add()
            await until(lambda: len(problems(caplog)) == 2, "the complaints")
            assert one.peer_key.values == {(): 0}
            assert "sent" not in str(one.peer_datagrams.values)
            routers.key_file.write_bytes(SECRET)
            await until(lambda: live(one) == live(two) == 1, "them to meet")
            assert one.peer_key.values == {(): 1}
            routers.key_file.write_bytes(b"short")
            await until(lambda: one.peer_key.values == two.peer_key.values == {(): 0}, "the key to be gone")
            routers.key_file.write_bytes(SECRET[::-1])
            await until(lambda: one.peer_key.values == two.peer_key.values == {(): 1}, "the other key")

    run(check())
    # each of the two, each problem once, however often it was looked at
    missing, short = (sum(words in each for each in problems(caplog)) for words in ("cannot be read", "has 5 bytes"))
    assert (missing, short) == (2, 2)


def test_strangers_and_noise_are_counted_and_told_once(tmp_path, caplog):
    async def check():
        async with Routers(tmp_path) as routers:
            one, listener, metrics = routers.add()
            with socket.socket(socket.AF_INET, socket.SOCK_DGRAM) as stranger:
                forged = encode(
                    Datagram(DatagramKind.TICK, 1, 1, one._wall(), [placement(1)]), seal_key(b"another secret..")
                )
                stranger.connect(("127.0.0.1", one.port))
                for data in (forged, forged, b"", b"noise", bytes(9000)):
                    stranger.send(data)
                dropped = metrics.peer_dropped
                await until(lambda: sum(dropped.values.values()) == 5, "all to be dropped")
            assert dropped.values == {("forged",): 2, ("malformed",): 3}
            assert (listener.locations, live(metrics)) == ({}, 0)

    run(check())
    assert problems(caplog) == ["from 127.0.0.1"] * 2  # a reason each


def test_without_a_key_what_others_send_is_counted_and_the_log_says_no_more_than_that(tmp_path, caplog):
    async def check():
        async with Routers(tmp_path) as routers:
            routers.key_file.unlink()
            one, _, metrics = routers.add()
            with socket.socket(socket.AF_INET, socket.SOCK_DGRAM) as stranger:
                stranger.connect(("127.0.0.1", one.port))
                stranger.send(b"hello")
                await until(lambda: metrics.peer_dropped.values.get(("no_key",)) == 1, "it to be dropped")
            assert metrics.peer_datagrams.values == {("received",): 1}

    run(check())
    assert len(problems(caplog)) == 1


@pytest.mark.heavy
@pytest.mark.interpreted
def test_names_that_do_not_resolve_and_sends_that_fail_are_counted_and_survived(tmp_path, quick, monkeypatch, caplog):
    broken = True

    async def flaky(name, ports, family):
        if broken:
            raise socket.gaierror(socket.EAI_AGAIN, "Temporary failure in name resolution")
        return [("127.0.0.1", port) for port in ports]

    monkeypatch.setattr(discovery, "resolve", flaky)

    async def check():
        nonlocal broken
        async with Routers(tmp_path) as routers:
            one, _, metrics = routers.add(peers=(PeerName("router-peers"),))
            await until(lambda: metrics.peer_lookup_failures.values[()] > 1, "two failures")
            sends = iter([errno.ENOBUFS, errno.EPERM, errno.ENETUNREACH])

            class Faulty:
                def sendto(self, data, address):
                    if (number := next(sends, None)) is not None:
                        raise OSError(number, os.strerror(number))
                    return bound.sendto(data, address)

                def __getattr__(self, name):
                    return getattr(bound, name)

            bound, one._socket = one._socket, Faulty()
            broken = False
            await until(lambda: metrics.peer_dropped.values.get(("unsent",)) == 3, "three sends to fail")
            broken = True
            failures = metrics.peer_lookup_failures.values[()]
            await until(lambda: metrics.peer_lookup_failures.values[()] > failures, "lookups to fail again")
            routers.add()  # finds nobody itself: the last addresses that the other knows serve
            await until(lambda: live(metrics) == 1, "a peer")
            one._socket = bound

    run(check())
    for words in ("Temporary failure", "No buffer space"):
        assert any(words in each for each in problems(caplog))


def test_a_socket_that_cannot_be_read_is_left_until_it_can(tmp_path, caplog):
    async def check():
        async with Routers(tmp_path) as routers:
            one, _, metrics = routers.add()

            class Unreadable:
                def recvfrom(self, size):
                    raise OSError(errno.ENETDOWN, os.strerror(errno.ENETDOWN))

            bound, one._socket = one._socket, Unreadable()
            one._readable()
            one._socket = bound
            routers.add()
            await until(lambda: live(metrics) == 1, "a peer")

    run(check())
    assert "Network is down" in problems(caplog)[0]


def test_a_range_without_a_free_port_says_what_to_give(tmp_path):
    async def check():
        async with Routers(tmp_path) as routers:
            one, _, _ = routers.add()
            with pytest.raises(OSError, match=rf"from {one.port} to {one.port} \(--peer-port, --peer-ports\).*in use"):
                routers.add(peer_port=one.port, peer_ports=1)

    run(check())


def test_ipv6_and_ipv4_meet_on_one_socket(tmp_path):
    async def check():
        async with Routers(tmp_path) as routers:
            try:
                _, _, metrics = routers.add(host="::", peers=(PeerName("::1"), PeerName("127.0.0.1")))
            except OSError:
                pytest.skip("no IPv6 on this machine")
            _, _, other = routers.add()
            await until(lambda: live(metrics) == live(other) == 1, "them to meet")

    run(check())
