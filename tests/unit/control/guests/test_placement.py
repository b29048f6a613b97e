from dataclasses import replace

from promptgroup_operator.guests.placement import placed
from support.builders import pod, starting

PODS = [pod(f"p{number}") for number in range(8)]


def names(*args):
    return [each.name for each in placed(*args)]


def test_replicas_that_hold_a_slot_stay_when_the_host_grows():
    before = names(PODS[:4], 2, "support", ())
    assert names(PODS, 2, "support", before) == before


def test_guests_spread_over_the_host():
    taken = [name for number in range(40) for name in names(PODS, 2, f"guest-{number}", ())]
    assert {taken.count(each.name) for each in PODS} <= set(range(4, 18))


def test_revisions_of_a_guest_share_replicas():
    assert names(PODS, 1, "support", ()) == names(PODS, 3, "support", ())[:1]


def test_an_engine_that_does_not_answer_gives_way():
    assert names([starting("p0"), pod("p1")], 1, "support", {"p0"}) == ["p1"]


def test_all_replicas_where_more_are_wanted():
    assert len(placed(PODS, 20, "support", ())) == 8


def test_a_new_prompt_avoids_a_replica_that_is_full_and_one_that_is_there_stays():
    full = replace(pod("p0"), crowd=300_000)
    assert names([full, pod("p1")], 1, "support", ()) == ["p1"]
    assert names([full, pod("p1")], 1, "support", {"p0"}) == ["p0"]
