from datetime import timedelta

import pytest

from promptgroup_operator.rollout import DRAIN_TIMEOUT, PROPAGATION, RESOLUTION, Phase, drained, steps
from promptgroup_router.contract.fingerprint import fingerprint
from support.builders import NOW, ago, pod, restarted, revision, starting

A, B, C = (fingerprint(text) for text in "abc")
HOUR = timedelta(hours=1)

SERVING, COMING, SUPERSEDED, RETIRING = Phase.SERVING, Phase.COMING, Phase.SUPERSEDED, Phase.RETIRING


def warm(count, *, first=0):
    return [pod(f"p{i}", i) for i in range(first, first + count)]


def serves(text, pods, **fields):
    return revision(text, pods, weight=100, **fields)


def waits(text, pods, **fields):
    return revision(text, pods, **{"weight": 0, **fields})


def old(text, pods, **fields):
    """Superseded, within its time."""
    return waits(text, pods, **{"superseded_at": ago(minutes=1), **fields})


def phases(revisions, target, replicas):
    """Fingerprint → (phase, weight, replicas)."""
    plan = steps(revisions, target, replicas, HOUR, NOW)
    return {each.fingerprint: (each.phase, each.weight, each.replicas) for each in plan.values()}


PHASES = {
    "the first revision serves from the start": ([], A, 2, {A: (SERVING, 100, 2)}),
    "one revision serves, warm or not": ([serves("a", [starting("p")])], A, 1, {A: (SERVING, 100, 1)}),
    "a new prompt comes up beside the old one at full size": (
        [serves("a", warm(2))],
        B,
        2,
        {B: (COMING, 0, 2), A: (SERVING, 100, 2)},
    ),
    "it waits while a replica is missing": (
        [serves("a", warm(2)), waits("b", [*warm(1), starting("q")])],
        B,
        2,
        {B: (COMING, 0, 2), A: (SERVING, 100, 2)},
    ),
    "it takes over when it is warm at full size": (
        [serves("a", warm(2)), waits("b", warm(2))],
        B,
        2,
        {B: (SERVING, 100, 2), A: (SUPERSEDED, 0, 2)},
    ),
    "slots above the wanted size do not count": (
        [serves("a", warm(2)), old("b", warm(2, first=1))],
        B,
        2,
        {B: (COMING, 0, 2), A: (SERVING, 100, 2)},
    ),
    "it keeps the traffic when a replica dies afterwards": (
        [old("a", warm(2)), serves("b", warm(1))],
        B,
        2,
        {B: (SERVING, 100, 2), A: (SUPERSEDED, 0, 2)},
    ),
    "it takes over at once when nothing of the old one is warm": (
        [serves("a", [starting("p")])],
        B,
        2,
        {B: (SERVING, 100, 2), A: (SUPERSEDED, 0, 1)},
    ),
    "a smaller new one takes over at its own size": (
        [serves("a", warm(4)), waits("b", warm(1))],
        B,
        1,
        {B: (SERVING, 100, 1), A: (SUPERSEDED, 0, 4)},
    ),
    "the old one is resized while it serves": (
        [serves("a", warm(2)), waits("b", [])],
        B,
        4,
        {B: (COMING, 0, 4), A: (SERVING, 100, 4)},
    ),
    "A to B to A: the old one is warm and takes over at once": (
        [old("a", warm(2)), serves("b", warm(2))],
        A,
        2,
        {A: (SERVING, 100, 2), B: (SUPERSEDED, 0, 2)},
    ),
    "A to B to A: it waits until it is warm at the size wanted since": (
        [old("a", warm(2)), serves("b", warm(4))],
        A,
        4,
        {A: (COMING, 0, 4), B: (SERVING, 100, 4)},
    ),
    "A to B to A before B took over: A never stopped serving": (
        [serves("a", warm(1)), waits("b", warm(1))],
        A,
        2,
        {A: (SERVING, 100, 2), B: (SUPERSEDED, 0, 1)},
    ),
    "A to B to C: B, which never had the traffic and nothing warm, retires at once": (
        [serves("a", warm(2)), waits("b", [starting("q")])],
        C,
        2,
        {C: (COMING, 0, 2), A: (SERVING, 100, 2), B: (RETIRING, 0, 0)},
    ),
    "A to B to C: B, which is warm, may have been used and stays for its time": (
        [serves("a", warm(2)), waits("b", warm(1))],
        C,
        2,
        {C: (COMING, 0, 2), A: (SERVING, 100, 2), B: (SUPERSEDED, 0, 1)},
    ),
    "A to B to C after B took over: B serves, A waits out its time": (
        [old("a", warm(2)), serves("b", warm(2))],
        C,
        2,
        {C: (COMING, 0, 2), B: (SERVING, 100, 2), A: (SUPERSEDED, 0, 2)},
    ),
    "one that was marked superseded before the route was written serves still": (
        [serves("a", warm(2), superseded_at=ago(seconds=1)), waits("b", warm(1))],
        B,
        2,
        {B: (COMING, 0, 2), A: (SERVING, 100, 2)},
    ),
    "without a route the one that was never superseded serves": (
        [old("a", warm(2)), waits("b", warm(2)), waits("c", [])],
        C,
        2,
        {C: (COMING, 0, 2), B: (SERVING, 100, 2), A: (SUPERSEDED, 0, 2)},
    ),
    "scaled to nothing the new one takes over when the old one is gone": (
        [serves("a", warm(1))],
        B,
        0,
        {B: (COMING, 0, 0), A: (SERVING, 100, 0)},
    ),
    "scaled to nothing the old one retires without waiting": (
        [serves("a", [], replicas=0)],
        B,
        0,
        {B: (SERVING, 100, 0), A: (RETIRING, 0, 0)},
    ),
}


@pytest.mark.parametrize("case", PHASES)
def test_phases(case):
    revisions, target, replicas, expected = PHASES[case]
    assert phases(revisions, target, replicas) == expected


@pytest.mark.parametrize("case", PHASES)
def test_weights_add_up_to_all_new_sessions_and_one_revision_has_them(case):
    revisions, target, replicas, _ = PHASES[case]
    assert max(weight for _, weight, _ in phases(revisions, target, replicas).values()) == 100
    assert sum(weight for _, weight, _ in phases(revisions, target, replicas).values()) == 100


RETIRED = {
    "not before its time": ({"superseded_at": ago(minutes=59)}, SUPERSEDED),
    "when its time has come": ({"superseded_at": ago(minutes=60)}, RETIRING),
    "not while its engines work for somebody": (
        {"superseded_at": ago(minutes=90), "quiet_since": ago(minutes=59)},
        SUPERSEDED,
    ),
    "when they have been quiet as long": (
        {"superseded_at": ago(minutes=90), "quiet_since": ago(minutes=60)},
        RETIRING,
    ),
    "quiet from before it was superseded does not count": (
        {"superseded_at": ago(minutes=30), "quiet_since": ago(minutes=90)},
        SUPERSEDED,
    ),
    "unknown quiet is counted from when it was superseded": (
        {"superseded_at": ago(minutes=61), "quiet_since": None},
        RETIRING,
    ),
}


@pytest.mark.parametrize("case", RETIRED)
def test_the_old_revision_retires(case):
    fields, expected = RETIRED[case]
    plan = steps([serves("b", warm(1)), waits("a", warm(1), **fields)], B, 1, HOUR, NOW)
    assert plan[A].phase is expected


def test_one_that_loses_all_its_replicas_is_not_retired_for_that():
    plan = steps([serves("b", warm(1)), old("a", [restarted("p")])], B, 1, HOUR, NOW)
    assert plan[A].phase is SUPERSEDED


def test_the_time_of_being_superseded_is_set_once_kept_and_cleared():
    taking_over = [serves("a", warm(1)), waits("b", warm(1))]
    assert steps(taking_over, B, 1, HOUR, NOW)[A].superseded_at == NOW
    assert steps([old("a", warm(1)), serves("b", warm(1))], B, 1, HOUR, NOW)[A].superseded_at == ago(minutes=1)
    assert steps([old("a", warm(1)), serves("b", warm(1))], A, 1, HOUR, NOW)[A].superseded_at is None
    waiting = steps([serves("a", warm(1), superseded_at=ago(seconds=1))], B, 1, HOUR, NOW)
    assert waiting[A].superseded_at is None


def test_one_that_never_took_over_retires_without_a_mark_that_would_make_it_wait():
    plan = steps([serves("a", warm(1)), waits("b", [starting("q")])], A, 1, HOUR, NOW)
    assert (plan[B].phase, plan[B].superseded_at) == (RETIRING, None)


TOLD = PROPAGATION + RESOLUTION

DRAINED = {
    "one that terminates": (pod(deleting=True), True),
    "one that was not told to": (pod(in_flight=0), False),
    "one that idles, but of which routers may not know": (
        pod(in_flight=0, draining_since=NOW - TOLD + timedelta(milliseconds=1)),
        False,
    ),
    "one that idles and that no router knows": (pod(in_flight=0, draining_since=NOW - TOLD), True),
    "one with requests": (pod(in_flight=1, draining_since=NOW - TOLD), False),
    "one of which nobody knows what runs on it": (pod(in_flight=None, draining_since=NOW - TOLD), False),
    "one whose time is up": (pod(in_flight=1, draining_since=NOW - DRAIN_TIMEOUT), True),
    "one of which nobody knows, whose time is up": (pod(in_flight=None, draining_since=NOW - DRAIN_TIMEOUT), True),
    "a cold one that routers may still know": (restarted(draining_since=NOW), False),
    "a cold one": (restarted(draining_since=NOW - TOLD), True),
    "one that starts and was not told to": (starting(), False),
}


@pytest.mark.parametrize("case", DRAINED)
def test_drained(case):
    given, expected = DRAINED[case]
    assert drained(given, NOW) is expected
