from concurrent.futures import Future
from datetime import timedelta

import pytest

from promptgroup_operator.base.errors import ClusterError, EngineError
from promptgroup_operator.load.router_history import RouterHistory
from promptgroup_operator.load.router_scrape import LISTED, LISTED_AGAIN, RouterScraper
from promptgroup_operator.world.load import PERIOD
from promptgroup_operator.world.snapshot import Key
from support.builders import NOW

KEY = Key("chat", "support")
PAGE = 'promptgroup_router_revision_sessions{group="chat/support",revision="aa"} 3\n'


class AtOnce:
    """An executor that has no threads."""

    def map(self, function, items):
        return map(function, items)

    def submit(self, function, *arguments):
        found = Future()
        found.set_result(function(*arguments))
        return found


class World:
    def __init__(self, pods):
        self.pods, self.pages, self.lists, self.reads = pods, {}, 0, []
        self.readings = RouterHistory()
        self.routers = RouterScraper(self.listed, self.text, self.readings, AtOnce())

    def listed(self, namespace):
        self.lists += 1
        if isinstance(self.pods, Exception):
            raise self.pods
        return dict(self.pods)

    def text(self, address):
        self.reads.append(address)
        page = self.pages.get(address, PAGE)
        if isinstance(page, Exception):
            raise page
        return page

    def read(self, seconds, period=PERIOD):
        self.routers.read({"chat"}, NOW + timedelta(seconds=seconds), period)


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
