"""Servers that are named in a table: which of their addresses a router connects to."""

import asyncio
import socket
from ipaddress import ip_network

import pytest
from hypothesis import given
from hypothesis import strategies as st

from promptgroup_local.ports import free_ports
from promptgroup_router.feed.outside_server import connect
from promptgroup_router.feed.slot_address import METADATA
from support.wire import run

LOOPBACK = (ip_network("127.0.0.0/8"),)


def named(*addresses: str):
    """A look-up by which every name has these addresses."""

    async def look_up(_host, port, **_):
        return [
            (socket.AF_INET6 if ":" in each else socket.AF_INET, socket.SOCK_STREAM, 6, "", (each, port))
            for each in addresses
        ]

    return look_up


async def connected(monkeypatch, addresses, networks, host="embedder.chat.svc"):
    """The address that a router has connected to."""

    async def serve(_reader, writer):
        writer.close()

    server = await asyncio.start_server(serve, "127.0.0.1", 0)
    port = server.sockets[0].getsockname()[1]
    if addresses:
        monkeypatch.setattr(asyncio.get_running_loop(), "getaddrinfo", named(*addresses), raising=False)
    try:
        _, writer = await connect(host, port, None, networks)
        peer = writer.get_extra_info("peername")[0]
        writer.transport.abort()
        return peer
    finally:
        server.close()


def test_a_name_may_lead_anywhere_only_where_the_table_is_the_routers_own(monkeypatch):
    async def inside():
        assert await connected(monkeypatch, ("127.0.0.1",), None) == "127.0.0.1"
        assert await connected(monkeypatch, ("127.0.0.1",), LOOPBACK) == "127.0.0.1"
        with pytest.raises(OSError, match="none that a pod can have"):
            await connected(monkeypatch, ("127.0.0.1",), ())

    run(inside())


def test_an_address_that_is_refused_or_takes_no_connection_leaves_the_others(monkeypatch):
    async def inside():
        assert await connected(monkeypatch, ("169.254.169.254", "127.0.0.1"), LOOPBACK) == "127.0.0.1"
        # nobody listens on this one
        assert await connected(monkeypatch, ("127.9.9.9", "127.0.0.1"), LOOPBACK) == "127.0.0.1"
        monkeypatch.setattr(asyncio.get_running_loop(), "getaddrinfo", named(), raising=False)
        with pytest.raises(OSError, match="has no address"):
            await connect("nobody", *free_ports(1), None, None)

    run(inside())


FORBIDDEN = st.one_of(
    st.ip_addresses(v=4, network="127.0.0.0/8"),
    st.ip_addresses(v=4, network="169.254.0.0/16"),
    st.ip_addresses(v=4, network="224.0.0.0/4"),
    st.ip_addresses(v=6, network="fe80::/10"),
    st.sampled_from(sorted(METADATA, key=str)),
    st.sampled_from(["::1", "::", "0.0.0.0", "::ffff:127.0.0.1", "64:ff9b::a9fe:a9fe", "2002:7f00:1::"]),
).map(str)


@given(st.lists(FORBIDDEN, min_size=1, max_size=5))
def test_no_name_leads_a_router_to_its_own_machine_or_to_a_clouds_keys(addresses):
    async def inside():
        asked = []

        async def look_up(host, port, **_):
            asked.append(host)
            return await named(*addresses)(host, port)

        loop = asyncio.get_running_loop()
        loop.getaddrinfo, before = look_up, loop.getaddrinfo
        loop.sock_connect = lambda *_: pytest.fail("it connected")
        try:
            with pytest.raises(OSError, match="its address is"):
                await connect("innocent.example", 443, None, ())
        finally:
            loop.getaddrinfo = before
        assert asked == ["innocent.example"], "one look-up: a second may say something else"

    asyncio.run(inside())
