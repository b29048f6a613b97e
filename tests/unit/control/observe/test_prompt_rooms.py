from collections import Counter

import pytest
from hypothesis import given
from hypothesis import strategies as st

from promptgroup_operator.guests import room
from promptgroup_operator.observe import prompt_rooms
from promptgroup_operator.observe.prompt_rooms import PromptRooms
from promptgroup_operator.world.snapshot import Key

HOST = Key("chat", "pool")


def route(name, tokens, pods):
    slots = [{"slot": number, "state": "Ready", "pod": pod} for number, pod in enumerate(sorted(pods))]
    return {"metadata": {"name": name}, "spec": {"revisions": [{"tokens": tokens, "slots": slots}]}}


ROUTES = st.builds(route, st.sampled_from("abc"), st.integers(0, 100), st.sets(st.sampled_from(["p0", "p1", "p2"])))


@given(st.lists(st.dictionaries(st.sampled_from("abc"), ROUTES, max_size=3), max_size=6))
def test_the_sums_are_those_of_the_current_routes_whatever_was_there_before(steps):
    rooms = PromptRooms()
    for step in steps:
        routes = [{**each, "metadata": {"name": name}} for name, each in step.items()]
        assert rooms.of(HOST, routes) == room.taken(routes)


def test_what_a_pass_got_does_not_change_with_later_routes():
    rooms = PromptRooms()
    before = rooms.of(HOST, [route("a", 100, {"p0"})])
    rooms.of(HOST, [route("a", 300, {"p0", "p1"})])
    assert before == room.PromptRoom({"p0": 100}, {"a": 100})


def test_a_host_that_is_gone_is_forgotten():
    rooms = PromptRooms()
    rooms.of(HOST, [route("a", 100, {"p0"})])
    rooms.forget(HOST)
    rooms.of(Key("chat", "other"), [])
    assert not rooms._hosts


@pytest.mark.parametrize("guests", [20, 50, 100])
def test_a_pass_parses_the_routes_that_changed_and_no_others(monkeypatch, guests):
    parsed = Counter()

    def counting(routes):
        parsed.update(each["metadata"]["name"] for each in routes)
        return room.taken(routes)

    monkeypatch.setattr(prompt_rooms, "taken", counting)
    rooms, routes = PromptRooms(), {f"g{number}": route(f"g{number}", 100, {"p0"}) for number in range(guests)}
    rooms.of(HOST, routes.values())
    parsed.clear()
    for _ in range(10):
        rooms.of(HOST, routes.values())
    routes["g7"] = route("g7", 200, {"p1"})
    rooms.of(HOST, routes.values())
    assert parsed == {"g7": 1}
