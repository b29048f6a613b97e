"""Whether a pool is there, by the pages of its servers."""

import socket

import pytest

from promptgroup_operator.api.cache import PoolSpec
from promptgroup_operator.base.errors import EngineError
from promptgroup_operator.base.fair_pool import FairPool
from promptgroup_operator.engines.pool_monitor import FRESH_SECONDS, STUCK_SECONDS, PoolMonitor, resolve
from promptgroup_operator.world.snapshot import PoolAnswers


class Servers:
    """Servers of a pool, and a clock that is turned by hand."""

    def __init__(self, *addresses):
        self.addresses, self.away, self.asked, self.now = list(addresses), {}, [], 0.0
        self.submitted = self.completed = 0
        self.filled = {}
        self.readers = FairPool(2, "read")
        self.monitor = PoolMonitor(self.read, self.readers, lambda: self.now, lambda _: self.addresses)

    def read(self, address, path):
        self.asked.append((address, path))
        if address in self.away:
            raise EngineError(self.away[address])
        return (
            f'lmcache_mp_l2_store_submitted_objects_chunks_total{{l2="a"}} {self.submitted}\n'
            f'lmcache_mp_l2_store_completed_objects_chunks_total{{l2="a"}} {self.completed}\n'
            f"lmcache_mp_l1_memory_usage_bytes {self.filled.get(address, 0) * 2**30}\n"
            f"lmcache_mp_l1_usage_ratio {self.filled.get(address, 0) / 8}\n"
        )

    def ask(self, kind="LMCache", *, later=FRESH_SECONDS):
        self.now += later
        return self.monitor.ask(PoolSpec(type=kind, address="a:1", monitor="m:2"), "chat")


@pytest.fixture
def servers():
    made = Servers("10.0.0.1:2", "10.0.0.2:2")
    yield made
    made.readers.close()


def test_every_server_is_asked_for_its_health(servers):
    assert servers.ask() == PoolAnswers(2)
    assert {each for each, path in servers.asked if path == "/healthcheck"} == {"10.0.0.1:2", "10.0.0.2:2"}


def test_one_that_is_away_is_named_with_the_cause(servers):
    servers.away["10.0.0.2:2"] = "/healthcheck: NewConnectionError"
    assert servers.ask() == PoolAnswers(2, {"10.0.0.2:2": "/healthcheck: NewConnectionError"})


def test_a_name_that_leads_nowhere_is_no_server(servers):
    servers.addresses = []
    assert servers.ask() == PoolAnswers(0)


def test_groups_that_share_a_pool_ask_once(servers):
    servers.ask()
    asked = len(servers.asked)
    servers.ask(later=FRESH_SECONDS / 2)
    assert len(servers.asked) == asked
    servers.ask()
    assert len(servers.asked) > asked


def test_the_size_of_its_memory_follows_from_what_is_filled_of_it(servers):
    assert servers.ask().capacity == 0  # both are empty
    servers.filled = {"10.0.0.1:2": 2}
    assert servers.ask().capacity == 0
    servers.filled["10.0.0.2:2"] = 5
    assert servers.ask().capacity == 16 << 30
    servers.away["10.0.0.2:2"] = "gone"
    assert servers.ask().capacity == 0


def test_mooncakes_master_has_another_page(servers):
    assert servers.ask("Mooncake") == PoolAnswers(2)
    assert {path for _, path in servers.asked} == {"/health"}


def test_a_server_that_accepts_and_stores_nothing_is_stuck_after_a_while(servers):
    servers.submitted = servers.completed = 100
    assert servers.ask().stuck == ()
    servers.submitted = 149
    assert servers.ask().stuck == ()
    assert servers.ask(later=STUCK_SECONDS + FRESH_SECONDS).stuck == ("10.0.0.1:2", "10.0.0.2:2")
    servers.completed = 101
    assert servers.ask().stuck == ()


def test_a_server_without_work_is_not_stuck_however_long(servers):
    servers.submitted, servers.completed = 149, 100  # some failed once
    servers.ask()
    servers.completed = 120
    for _ in range(20):
        assert servers.ask(later=STUCK_SECONDS).stuck == ()


def test_a_name_leads_to_each_address_with_the_port():
    assert resolve("127.0.0.1:7") == ["127.0.0.1:7"]
    if socket.has_ipv6:
        assert resolve("[::1]:7") == ["[::1]:7"]
    assert resolve("nowhere.invalid:7") == []
