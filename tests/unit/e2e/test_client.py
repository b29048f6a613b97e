import asyncio
import time

import pytest
from aiohttp.abc import AbstractResolver

from harness import client
from harness.client import Addresses, Pace


class Starting(AbstractResolver):
    """A DNS server that knows no name in its first answers."""

    def __init__(self, failures: int) -> None:
        self.failures, self.asked = failures, 0

    async def resolve(self, host, port=0, family=0):
        self.asked += 1
        if self.asked <= self.failures:
            raise OSError("Name or service not known")
        return [{"host": "10.0.0.1", "port": port}]

    async def close(self):
        pass


def test_requests_are_due_at_a_steady_rate_whatever_became_of_those_before():
    async def turns():
        pace = Pace(1e6)
        return [await pace.turn() for _ in range(4)]

    first, *_, last = asyncio.run(turns())
    assert last - first == pytest.approx(3e-6, abs=1e-6)
    assert first <= time.monotonic()


def test_without_a_rate_a_request_is_due_at_once():
    before = time.monotonic()
    assert before <= asyncio.run(Pace(0).turn()) <= time.monotonic()


def test_a_name_is_asked_for_until_it_has_an_address_and_then_kept(monkeypatch):
    monkeypatch.setattr(client, "RESOLVE_PAUSE", 0)
    server = Starting(failures=2)
    addresses = Addresses(server)

    async def resolve():
        return [(await addresses.resolve("router", 80))[0]["host"] for _ in range(2)]

    assert asyncio.run(resolve()) == ["10.0.0.1", "10.0.0.1"]
    assert server.asked == 3


def test_a_name_without_an_address_ends_the_client(monkeypatch):
    monkeypatch.setattr(client, "RESOLVE_PAUSE", 0)
    monkeypatch.setattr(client, "RESOLVE_SECONDS", 0.05)
    with pytest.raises(TimeoutError):
        asyncio.run(Addresses(Starting(failures=10**9)).resolve("router", 80))
