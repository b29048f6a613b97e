import tracemalloc
from datetime import timedelta

import pytest

from promptgroup_operator.base.errors import ClusterError, EngineError
from promptgroup_operator.load import router_scrape
from promptgroup_operator.load.router_history import RouterHistory
from promptgroup_operator.load.router_scrape import LISTED, LISTED_AGAIN, MAX_ROUTERS, RouterScraper
from promptgroup_operator.world.load import PERIOD
from promptgroup_operator.world.snapshot import Key
from support.builders import NOW

KEY, OTHER = Key("chat", "support"), Key("sales", "support")
GROUPS = {KEY, OTHER}
PAGE = 'promptgroup_router_revision_sessions{group="chat/support",revision="aa"} 3\n'


class AtOnce:
    """A pool that has no threads."""

    def map(self, namespace, function, items, seconds):
        return [function(each) for each in items]


class World:
    def __init__(self, pods, trusted=()):
        self.pods, self.pages, self.lists, self.reads = pods, {}, 0, []
        self.readings = RouterHistory()
        self.routers = RouterScraper(self.listed, self.text, GROUPS.__contains__, trusted, AtOnce())

    def listed(self, namespace):
        self.lists += 1
        if isinstance(self.pods, Exception):
            raise self.pods
        return dict(self.pods)

    def text(self, address, limit):
        self.reads.append(address)
        page = self.pages.get(address, PAGE)
        if isinstance(page, Exception):
            raise page
        return page

    def read(self, seconds, period=PERIOD):
        now = NOW + timedelta(seconds=seconds)
        for router, counted in self.routers.read("chat", now, period).items():
            self.readings.add(router, counted, now)


def test_every_router_is_read_once_a_period_and_listed_seldom():
    world = World({"r": "a:1", "s": "b:1"})
    for second in range(0, 241, 5):
        world.read(second)
    assert world.reads.count("a:1") == world.reads.count("b:1") == 240 / PERIOD.total_seconds() + 1
    assert world.lists == 1
    world.read(LISTED.total_seconds())
    assert world.lists == 2
    assert world.readings.clients(KEY, "aa", 0, NOW + timedelta(seconds=300)).sessions == 6


def test_in_a_release_they_are_read_and_listed_more_often():
    world = World({"r": "a:1"})
    for second in range(0, 61, 2):
        world.read(second, timedelta(seconds=2))
    assert len(world.reads) == 31
    assert world.lists == 2


def test_one_that_does_not_answer_has_them_listed_again_soon():
    world = World({"r": "a:1"})
    world.pages["a:1"] = EngineError("gone")
    world.read(0)
    world.pods = {"s": "b:1"}
    world.read(LISTED_AGAIN.total_seconds() - 1)
    assert world.lists == 1
    world.read(15)
    assert (world.lists, world.reads[-1]) == (2, "b:1")


def test_a_router_that_came_is_known_by_what_the_others_say():
    world = World({"r": "a:1"})
    world.pages["a:1"] = PAGE + "promptgroup_router_peers 0\n"
    world.read(0)
    world.read(15)
    assert world.lists == 1
    world.pages["a:1"] = PAGE + "promptgroup_router_peers 1\n"
    world.pods = {"r": "a:1", "s": "b:1"}
    world.read(30)
    world.read(45)
    assert (world.lists, world.reads[-1]) == (2, "b:1")
    for second in range(60, 300, 15):
        world.read(second)
    assert world.lists == 2, "as many as were seen are no news"


@pytest.mark.parametrize("error", [ClusterError("no right to"), ClusterError("down", status=503)])
def test_routers_that_cannot_be_listed_are_asked_for_again_and_end_no_pass(error):
    world = World({"r": "a:1"})
    world.read(0)
    world.pods = error
    world.read(300)
    assert world.reads == ["a:1", "a:1"], "those that were known are read on"
    world.read(305)
    assert world.lists == 2
    world.read(315)
    assert world.lists == 3


def test_a_router_is_read_for_all_groups_no_more_often_than_one_of_them_needs():
    world = World({"r": "a:1"})
    world.read(0)
    world.read(14)
    assert len(world.reads) == 1
    world.read(14, timedelta(seconds=2))
    world.read(15, timedelta(seconds=2))
    assert len(world.reads) == 2


LIES = """\
promptgroup_router_revision_sessions{group="sales/support",revision="aa"} 1000
promptgroup_router_revision_sessions{group="chat/unknown",revision="aa"} 1000
promptgroup_router_revision_sessions{group="chat/support",revision="aa"} 3
"""


def test_a_page_speaks_for_the_groups_of_its_own_namespace():
    world = World({"r": "a:1"})
    world.pages["a:1"] = LIES
    assert set(world.routers.read("chat", NOW, PERIOD)["r"]) == {KEY}


def test_a_trusted_namespaces_page_speaks_for_the_groups_of_all():
    world = World({"r": "a:1"}, trusted=["chat"])
    world.pages["a:1"] = LIES
    assert set(world.routers.read("sales", NOW, PERIOD)["r"]) == {KEY, OTHER}


def test_a_page_that_is_no_text_of_prometheus_ends_no_pass():
    world = World({"r": "a:1"})
    world.pages["a:1"] = LIES.replace("1000", "nan") + 'promptgroup_router_revision_first_token{le="x"} 1\n'
    assert set(world.routers.read("chat", NOW, PERIOD)["r"]) == {KEY}


@pytest.mark.heavy
def test_pages_of_many_routers_are_in_memory_one_at_a_time():
    world = World({f"r{number}": f"a{number}:1" for number in range(40)})
    world.routers._text = lambda address, limit: PAGE + "# " + "x" * (limit - len(PAGE) - 2)
    tracemalloc.start()
    try:
        found = world.routers.read("chat", NOW, PERIOD)
        _, peak = tracemalloc.get_traced_memory()
    finally:
        tracemalloc.stop()
    assert len(found) == MAX_ROUTERS
    assert peak < 5 * router_scrape.PAGE


def test_more_routers_than_a_namespace_needs_are_not_read_and_that_is_said(caplog):
    world = World({f"r{number}": f"a{number}:1" for number in range(MAX_ROUTERS + 3)})
    world.read(0)
    world.read(15)
    assert len(set(world.reads)) == MAX_ROUTERS
    assert [each.message for each in caplog.records] == ["chat: 35 routers; 32 of them are read"]
