from datetime import timedelta

from promptgroup_operator.act.events import BURST, REFILL, REMEMBERED, REPEATED, Counted, EventAggregator
from promptgroup_operator.world.effects import Event
from support.builders import NOW

WARM = Event("Normal", "Warm", "all replicas are warm")


def test_an_event_is_created_once_and_its_repetitions_are_counted():
    events = EventAggregator()
    assert events.add("u", WARM, NOW) == Counted(1, NOW)
    assert [events.add("u", WARM, NOW + timedelta(seconds=each)) for each in (1, 2, 3)] == [None] * 3
    assert events.add("u", WARM, NOW + REPEATED) == Counted(5, NOW)


def test_other_words_and_other_groups_are_other_events():
    events = EventAggregator()
    other = Event("Warning", "Warming", "1 of 2 replicas are warm")
    assert [events.add(*each, NOW) for each in (("u", WARM), ("u", other), ("v", WARM))] == [Counted(1, NOW)] * 3


def test_a_group_that_emits_many_waits_and_others_do_not():
    events = EventAggregator()
    many = [events.add("u", Event("Warning", "Warming", str(number)), NOW) for number in range(100)]
    assert sum(each is not None for each in many) == BURST
    assert events.add("v", WARM, NOW) is not None
    assert events.add("u", WARM, NOW + REFILL) is not None


def test_what_is_remembered_is_bounded():
    events = EventAggregator()
    for number in range(REMEMBERED + 10):
        events.add(f"u{number}", WARM, NOW)
    assert len(events._seen) == len(events._budgets) == REMEMBERED


def test_the_oldest_is_forgotten_and_what_is_repeated_stays():
    events = EventAggregator()
    for number in range(REMEMBERED):
        events.add(f"u{number}", WARM, NOW)
    events.add("u0", WARM, NOW)
    events.add("new", WARM, NOW)
    told = {uid: events.add(uid, WARM, NOW + REPEATED) for uid in ("u0", "new", "u1")}
    assert {uid: each.count for uid, each in told.items()} == {"u0": 3, "new": 2, "u1": 1}
