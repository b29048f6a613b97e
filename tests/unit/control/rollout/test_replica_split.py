from dataclasses import replace

import pytest

from promptgroup_contract.fingerprint import fingerprint, short
from promptgroup_operator.rollout import rollout
from promptgroup_operator.rollout.replica_split import allot, holders, wanted
from promptgroup_operator.world.samples import Flow, SlotUse, Traffic
from promptgroup_operator.world.snapshot import Problem, Progress, RolledBack
from support.builders import NOW, SETTINGS, ago, cold, goal, pod, restarted, revision

A, B = fingerprint("a"), fingerprint("b")


def test_what_a_group_wanted_is_what_was_noted_then_what_its_revisions_have():
    assert wanted([], A) is None
    assert wanted([revision("a", replicas=3)], A) == 3
    assert wanted([revision("a", replicas=3), revision("b", replicas=0)], B) == 3
    assert wanted([revision("a", replicas=0), revision("b", replicas=0)], B) is None
    assert wanted([revision("a", replicas=5), revision("b", replicas=2)], B) == 7


def test_neither_a_drain_nor_a_release_changes_what_it_wanted():
    assert wanted([revision("a", replicas=4, size=3)], A) == 3
    assert wanted([revision("a", replicas=3), revision("b", replicas=1, size=3)], B) == 3
    assert wanted([revision("a", replicas=2, size=4), revision("b", replicas=2)], B) == 4


def warm(count):
    return [pod(f"p{i}", i) for i in range(count)]


def told(new, *, known=True, named=1.0, requests=100):
    """Routers that saw so large a share of the requests at b."""
    shares = {short(B): new, short(A): 1 - new}
    return Traffic(known, {name: Flow(requests * share, requests * share * named) for name, share in shares.items()})


def sizes(old, new, traffic=None, **fields):
    """(old, new): sizes of a release of b that a serves."""
    steps = allotted(old, new, traffic, **fields)
    return steps[A].replicas, steps[B].replicas


def allotted(old, new, traffic=None, *, replicas=4, weight=0, use=None, **fields):
    """Fingerprint → step of a release of b that a serves; use: what routers say of a's slots."""
    revisions = [
        revision("a", old if isinstance(old, list) else warm(old), weight=100 - weight, use=use or {}),
        revision("b", new if isinstance(new, list) else warm(new), weight=weight, progress=Progress(0, None)),
    ]
    aim = goal("b", replicas, traffic=traffic, **fields)
    return allot(revisions, rollout.decide(revisions, aim), aim)


ROWS = {
    "it comes up with the surge": ((4, 0), (4, 1)),
    "the old one gives way once the new one serves": ((4, 1, told(0.25)), (3, 1)),
    "the new one grows into the room": ((3, 1, told(0.25)), (3, 2)),
    "what is not asked for yet is held": ((4, 1, told(0.0)), (4, 1)),
    "what is not known yet is held": ((4, 1, told(0.9, known=False)), (4, 1)),
    "few requests are no share: the weights stand for them": ((4, 1, told(0.0, requests=19)), (3, 1)),
    "without routers the weights stand for them": ((4, 1, None), (3, 1)),
    "one that gets everything is not taken from below one": ((2, 3, told(1.0)), (1, 3)),
    "no room is made while fewer would serve": ((4, [cold("q")], told(1.0)), (4, 1)),
    "noise of less than a replica moves nothing": ((3, 2, told(0.43)), (3, 2)),
    "traffic that comes back gets its replicas back": ((2, 3, told(0.2)), (2, 2)),
}


@pytest.mark.parametrize("case", ROWS)
def test_sizes(case):
    given, expected = ROWS[case]
    assert sizes(*given) == expected


def test_a_canary_has_what_its_step_allows():
    steps = [{"weight": 30, "pause": "1m"}]
    assert sizes(4, 1, None, steps=steps) == (3, 1)
    assert sizes(3, 2, told(0.3), steps=steps) == (3, 2)
    assert sizes(3, 2, told(0.9), steps=steps) == (3, 2), "the old one keeps what the step does not need"


def brought(share, weight=0.3):
    """Routers where clients bring b's prompt with so large a share of requests, and the others name the group."""
    named = 100 * (1 - share)
    return Traffic(
        True,
        {
            short(A): Flow(named * (1 - weight), named * (1 - weight)),
            short(B): Flow(100 * share + named * weight, named * weight),
        },
    )


def test_a_canary_has_what_clients_bring_to_it_beside_its_step():
    def split(old, new, share, **fields):
        steps = [{"weight": 30, "pause": "1m"}]
        return sizes(old, new, brought(share, fields.pop("weight", 30) / 100), replicas=3, steps=steps, **fields)

    assert split(3, 1, 0.0) == (3, 1)
    assert split(3, 1, 0.05) == (3, 1)
    assert split(3, 1, 0.25) == (2, 1), "one of the old revision leaves room"
    assert split(2, 1, 0.25) == (2, 2)
    assert split(2, 2, 0.12) == (2, 2), "noise moves nothing"
    assert split(2, 2, 1.0) == (1, 2)
    assert split(1, 2, 1.0) == (1, 3)
    assert split(3, 0, 1.0, weight=0) == (3, 1)


def test_a_larger_surge_grows_faster():
    assert sizes(4, 0, maxSurge="50%") == (4, 2)
    assert sizes(4, 2, told(0.5), maxSurge="50%") == (2, 2)


def test_a_replica_that_will_not_serve_again_is_not_waited_for():
    broken = [pod("p0", 0), cold("p1", 1, reason="PrefixNotCached")]
    assert sizes(broken, 1, replicas=2) == (1, 1)
    assert sizes([restarted("p0", 0), pod("p1", 1)], 1, replicas=2) == (1, 1)
    assert allotted([restarted("p0", 0), pod("p1", 1)], 1, replicas=2)[A].ring == {1}


def test_a_replica_that_time_mends_is_waited_for_unless_its_prompt_is_lost():
    def sizes(**fields):
        revisions = [
            revision("a", [*warm(2), cold("p2", 2)], **fields),
            revision("b", warm(1), weight=0, progress=Progress(0, None)),
        ]
        aim = goal("b", 3, traffic=told(1.0))
        steps = allot(revisions, rollout.decide(revisions, aim), aim)
        return steps[A].replicas, steps[B].replicas

    assert sizes() == (2, 1)
    assert sizes(prompt=None) == (1, 1)


def test_the_old_one_gives_up_the_slot_whose_loss_costs_least():
    use = {0: SlotUse(tokens=9), 1: SlotUse(tokens=2), 2: SlotUse(tokens=7), 3: SlotUse(tokens=8)}
    assert allotted(4, 1, told(0.25), use=use)[A].ring == {0, 2, 3}
    assert allotted(4, 1, told(0.25))[A].ring == {0, 1, 2}


def test_a_group_alone_does_as_it_is_told():
    one = [revision("a", [pod("p0", 0), restarted("p1", 1), restarted("p2", 2)])]
    for replicas, expected in ((1, 1), (5, 5), (0, 0)):
        aim = goal("a", replicas)
        assert allot(one, rollout.decide(one, aim), aim)[A].replicas == expected


def test_of_a_group_of_no_replicas_nothing_stays():
    assert sizes(2, 1, replicas=0) == (0, 0)
    revisions = [revision("a", warm(2)), revision("c", warm(1), weight=0, superseded_at=ago(seconds=9))]
    steps = allot(revisions, rollout.decide(revisions, goal("a", 0)), goal("a", 0))
    assert [step.replicas for step in steps.values()] == [0, 0]


def test_a_revision_that_goes_leaves_when_the_others_serve():
    gone = revision("c", warm(1), weight=0, superseded_at=ago(hours=2))
    for serving, expected in ((4, 0), (3, 1)):
        revisions = [revision("a", warm(serving), replicas=4), gone]
        aim = goal("a", 4)
        assert allot(revisions, rollout.decide(revisions, aim), aim)[fingerprint("c")].replicas == expected


def test_after_a_roll_back_what_serves_has_its_replicas_back_though_sessions_of_others_run():
    def sizes(quiet_since, *, gone=False):
        revisions = [
            revision("a", warm(2), weight=100),
            revision("b", warm(1), weight=0, rolled_back=RolledBack(ago(minutes=1), SETTINGS, Problem("", ""))),
            revision("c", () if gone else warm(1), weight=0, superseded_at=ago(minutes=5), quiet_since=quiet_since),
        ]
        aim = goal("b", 3)
        steps = allot(revisions, rollout.decide(revisions, aim), aim)
        return [steps[fingerprint(each)].replicas for each in "abc"]

    assert sizes(NOW) == [2, 1, 0], "the surge is the canary's"
    assert sizes(ago(minutes=1)) == [2, 1, 0]
    assert sizes(ago(minutes=1), gone=True) == [3, 1, 0]


def test_what_holds_the_room_of_a_release_is_named():
    def told(**fields):
        revisions = [revision("a", warm(3)), revision("c", warm(1), weight=0, superseded_at=NOW, **fields)]
        aim = goal("b", 3)
        return holders(revisions, rollout.decide(revisions, aim).steps, aim).replace(short(fingerprint("c")), "c")

    until = "until 2026-11-03T16:00:00Z at the latest"
    assert told() == f"1 of c (Superseded, {until})"
    asked = "last request at 2026-11-03T11:58:00Z"
    assert told(quiet_since=ago(seconds=61)) == f"1 of c (Superseded, {asked}, {until})"
    assert told(use={0: SlotUse(sessions=1)}) == f"1 of c (Superseded, 1 session, {until})"
    assert (
        told(use={0: SlotUse(sessions=23), 1: SlotUse(sessions=4)})
        == f"1 of c (Superseded, about 20 sessions, {until})"
    )
    aim = goal("b", 3)
    alone = [revision("a", warm(3))]
    assert holders(alone, rollout.decide(alone, aim).steps, aim) == ""


@pytest.mark.parametrize("superseded", [0, 1, 2, 4])
@pytest.mark.parametrize("surge", [0, 1, 2])
def test_what_serves_has_all_that_the_group_wants_beside_sessions_of_any_number_of_others(superseded, surge):
    """Followed to its end: what shall go has gone in the next pass, and what shall come is warm."""
    sizes = {"a": 2} | {f"s{index}": 1 for index in range(superseded)}
    for _ in range(8):
        revisions = [
            revision(text, warm(size), weight=100 if text == "a" else 0, replicas=size, quiet_since=NOW)
            for text, size in sizes.items()
        ]
        revisions = [each if each.weight else replace(each, superseded_at=ago(minutes=2)) for each in revisions]
        aim = goal("a", 3, maxSurge=surge)
        steps = allot(revisions, rollout.decide(revisions, aim), aim)
        sizes = {text: steps[fingerprint(text)].replicas for text in sizes}
        assert sum(sizes.values()) <= max(3 + surge, sum(each.alive for each in revisions))
    assert sizes["a"] == 3
    assert sum(sizes.values()) == 3 + min(surge, superseded)


def test_without_a_surge_one_leaves_before_one_comes():
    assert sizes(3, 0, replicas=3, maxSurge=0) == (2, 0)
    assert sizes(2, 0, replicas=3, maxSurge=0) == (2, 1)
    assert sizes(2, [cold("q")], replicas=3, maxSurge=0) == (2, 1), "one fewer serves, and no more than one"
    assert sizes(2, 1, told(0.6), replicas=3, maxSurge=0) == (1, 1)
    assert sizes(1, 1, told(0.6), replicas=3, maxSurge=0) == (1, 2)
    assert sizes(1, 0, replicas=1, maxSurge=0) == (0, 0)
    assert sizes(0, 0, replicas=1, maxSurge=0) == (0, 1)


def test_a_replica_that_is_warm_is_not_lost_though_its_prompt_is():
    revisions = [
        revision("a", warm(4), prompt=None),
        revision("b", [cold("q")], weight=0, progress=Progress(0, None)),
    ]
    aim = goal("b", 4, traffic=told(1.0))
    assert allot(revisions, rollout.decide(revisions, aim), aim)[A].replicas == 4
