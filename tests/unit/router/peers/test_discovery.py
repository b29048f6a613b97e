import asyncio
import socket

import pytest

from promptgroup_router.base.core_settings import PeerName
from promptgroup_router.peers import discovery
from support.wire import run


def found(name: PeerName, family: socket.AddressFamily = socket.AF_INET) -> list:
    got: list = []

    async def check():
        got.extend(await discovery.resolve(name, range(9094, 9097), family))

    run(check())
    return got


def test_a_host_is_every_address_with_every_port_of_the_range():
    assert found(PeerName("127.0.0.1")) == [("127.0.0.1", port) for port in (9094, 9095, 9096)]


def test_a_host_with_a_port_is_that_port():
    assert found(PeerName("localhost", 7000)) == [("127.0.0.1", 7000)]


def test_ipv4_is_reached_through_an_ipv6_socket():
    assert found(PeerName("127.0.0.1", 7000), socket.AF_INET6) == [("::ffff:127.0.0.1", 7000, 0, 0)]


def test_a_name_without_addresses_is_an_oserror(monkeypatch):
    async def nobody(*_, **__):
        raise socket.gaierror(socket.EAI_NONAME, "Name or service not known")

    async def check():
        monkeypatch.setattr(asyncio.get_running_loop(), "getaddrinfo", nobody)
        with pytest.raises(OSError, match="not known"):
            await discovery.resolve(PeerName("nobody"), range(1, 2), socket.AF_INET)

    asyncio.run(check())


def test_a_resolver_that_says_nothing_is_an_oserror(monkeypatch):
    async def silence(*_, **__):
        await asyncio.Event().wait()

    async def check():
        monkeypatch.setattr(discovery, "LOOKUP_SECONDS", 0.01)
        monkeypatch.setattr(asyncio.get_running_loop(), "getaddrinfo", silence)
        with pytest.raises(OSError):
            await discovery.resolve(PeerName("nobody"), range(1, 2), socket.AF_INET)

    asyncio.run(check())


def test_an_address_of_another_family_is_an_oserror():
    with pytest.raises(OSError, match="no address of this"):
        discovery._with_port((10, b"\0"), 1)
