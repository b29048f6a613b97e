"""Releases: whatever stands, somebody serves, nobody who does is taken away, and the bounds hold."""

from dataclasses import replace
from datetime import timedelta

import pytest
from hypothesis import given
from hypothesis import strategies as st

from promptgroup_contract.fingerprint import fingerprint, short
from promptgroup_operator.rollout import rollout
from promptgroup_operator.rollout.release import GOING, RevisionPhase
from promptgroup_operator.rollout.replica_split import allot
from promptgroup_operator.world.samples import Flow, Stratum, StratumKey, Traffic
from promptgroup_operator.world.snapshot import Problem, Progress, RolledBack
from support.builders import SETTINGS, ago, cold, goal, pod, revision

TIMES = st.sampled_from([None, None, ago(minutes=1), ago(minutes=59), ago(hours=1), ago(hours=2)])
MARK = RolledBack(ago(minutes=5), SETTINGS, Problem("ErrorRate", "worse"))


@st.composite
def revisions(draw):
    made = []
    for text in draw(st.sets(st.sampled_from("abcd"), max_size=4)):
        pods = [
            draw(st.sampled_from([pod, pod, cold]))(f"{text}{i}", draw(st.none() | st.integers(0, 5)))
            for i in range(draw(st.integers(0, 4)))
        ]
        made.append(
            revision(
                text,
                pods,
                weight=draw(st.sampled_from([0, 0, 20, 80, 100])),
                superseded_at=draw(TIMES),
                quiet_since=draw(TIMES),
                replicas=draw(st.integers(0, 5)),
                progress=draw(st.none() | st.builds(Progress, st.sampled_from([0, 20, 40, 60, 100]), TIMES)),
                rolled_back=draw(st.sampled_from([None, None, MARK])),
                created=f"2026-11-03T11:00:0{draw(st.integers(0, 3))}Z",
            )
        )
    return made


@st.composite
def traffics(draw):
    share = st.integers(0, 1000)
    names = [short(fingerprint(text)) for text in "abcd"]
    requests = {name: draw(share) for name in names}
    return Traffic(
        draw(st.booleans()),
        {name: Flow(count, count * draw(st.sampled_from([0, 0.5, 1]))) for name, count in requests.items()},
        {
            name: {StratumKey(): Stratum(count, count * draw(st.sampled_from([0, 0.1])))}
            for name, count in requests.items()
        },
    )


STEPS = [{"weight": 20, "pause": "30m"}, {"weight": 60, "pause": "30m"}]
GOALS = st.builds(
    goal,
    st.sampled_from("abcd"),
    st.integers(0, 5),
    traffic=st.none() | traffics(),
    steps=st.sampled_from([[], STEPS[:1], STEPS]),
    paused=st.booleans(),
    autoPromote=st.booleans(),
    maxSurge=st.sampled_from([0, 1, 2, "50%"]),
)


@given(revisions(), GOALS)
def test_every_revision_has_a_step_and_the_weights_are_all_new_sessions(found, aim):
    plan = rollout.decide(found, aim).steps
    assert set(plan) == {aim.target} | {each.fingerprint for each in found}
    assert sum(step.weight for step in plan.values()) == 100
    assert all(0 <= step.weight <= 100 for step in plan.values())
    assert all(step.weight == 0 for step in plan.values() if step.phase in {RevisionPhase.SUPERSEDED, *GOING})


@given(revisions(), GOALS)
def test_a_release_says_what_it_waits_for_and_only_a_release_does(found, aim):
    release = rollout.decide(found, aim)
    assert (release.waits is None) == (release.steps[aim.target].phase is RevisionPhase.SERVING)
    if aim.policy.paused:
        before = next((each.weight for each in found if each.fingerprint == aim.target), 0)
        assert release.steps[aim.target].weight <= before or release.waits is None


@given(revisions(), GOALS)
def test_nobody_who_served_loses_all_to_one_that_is_cold_or_held(found, aim):
    """One that took over, and from which nothing has taken over, serves whatever became of its pods."""
    steps = rollout.decide(found, aim).steps
    incumbents = [each for each in found if each.progress is None and (each.weight or each.superseded_at is None)]
    wanted = next((each for each in found if each.fingerprint == aim.target), None)
    others = [each for each in incumbents if each is not wanted]
    if not others or (wanted in incumbents and wanted.weight == 100):
        return
    held = aim.policy.paused or aim.policy.weights[-1] < 100
    if held or (aim.replicas and (wanted is None or not wanted.ready)):
        assert steps[aim.target].phase is not RevisionPhase.SERVING
        serving = [each for each in others if steps[each.fingerprint].phase is RevisionPhase.SERVING]
        assert len(serving) == 1
        assert steps[serving[0].fingerprint].superseded_at is None


@given(st.lists(st.integers(1, 99), max_size=4, unique=True), st.integers(0, 99), TIMES, GOALS, traffics())
def test_an_edit_of_steps_promotes_nobody(weights, come_to, since, aim, traffic):
    """Whatever the steps become: the release is at one of them, with a pause and an analysis of its own or its own."""
    weights = sorted(weights) or [50]
    paused = replace(aim.policy, weights=(*weights, 100), pauses=(timedelta(minutes=30),) * len(weights))
    new = revision("b", [pod(f"n{i}", i) for i in range(5)], weight=come_to, progress=Progress(come_to, since))
    found = [revision("a", [pod(f"a{i}", i) for i in range(5)], weight=100 - come_to), new]
    aim = replace(aim, target=new.fingerprint, policy=paused)
    step = rollout.decide(found, replace(aim, traffic=traffic)).steps[new.fingerprint]
    if come_to not in weights and step.progress is not None:
        assert step.weight <= max(come_to, next((each for each in weights if each >= come_to), weights[-1]))
        assert step.progress.weight < 100
        assert step.progress.since in (None, aim.now)
    elif step.progress is not None and step.progress.weight == 100:
        assert come_to == weights[-1]
        assert since is not None
        assert aim.now - since >= timedelta(minutes=30)


@pytest.mark.heavy
@given(revisions(), GOALS)
def test_only_what_nobody_misses_retires(found, aim):
    release = rollout.decide(found, aim)
    steps = release.steps
    early = []
    for each in found:
        step = steps[each.fingerprint]
        if step.phase is RevisionPhase.SUPERSEDED:
            assert step.superseded_at is not None
        if step.phase in GOING and each.ready and not step.moves:
            rested = _rested(each, aim)
            assert rested is not None
            if rested < timedelta(hours=1):
                early.append(each)
    # before its time one goes only for want of room, after a minute without a request, and the oldest first
    assert all(_rested(each, aim) >= timedelta(minutes=1) for each in early)
    kept = [each for each in found if steps[each.fingerprint].phase is RevisionPhase.SUPERSEDED and each.superseded_at]
    assert len(early) <= max(0, len(early) + len(kept) - _room(release, aim))
    if len(kept) > max(0, _room(release, aim)):
        assert all(_rested(each, aim) < timedelta(minutes=1) for each in kept)
    if early:
        last = max(each.superseded_at for each in early)
        assert all(_rested(each, aim) < timedelta(minutes=1) for each in kept if each.superseded_at < last)


def _rested(revision, aim):
    """Time since a revision was superseded or rolled back and since its last request; None before."""
    since = revision.superseded_at or (revision.rolled_back.at if revision.rolled_back is not None else None)
    return aim.now - max(since, revision.quiet_since or since) if since is not None else None


def _room(release, aim):
    """Replicas that the group may have beside those which the target and the revision that serves need."""
    target = release.steps[aim.target]
    if release.waits is None:
        needed = aim.replicas
    elif target.rolled_back is not None:
        needed = aim.replicas + (target.phase is RevisionPhase.ROLLED_BACK)
    else:
        needed = release.most + 1
    return aim.replicas + aim.policy.surge - needed


@pytest.mark.heavy
@given(revisions(), GOALS)
def test_a_revision_keeps_a_replica_until_it_retires(found, aim):
    steps = allot(found, rollout.decide(found, aim), aim)
    for each in found:
        gives_way = not aim.policy.surge and steps[each.fingerprint].phase is RevisionPhase.SERVING
        if each.alive and aim.replicas and steps[each.fingerprint].phase not in GOING and not gives_way:
            assert steps[each.fingerprint].replicas >= 1


@given(revisions(), GOALS)
def test_sizes_stay_within_wanted_and_surge_and_take_no_replica_that_is_needed(found, aim):
    before = {each.fingerprint: each.alive for each in found}
    steps = allot(found, rollout.decide(found, aim), aim)
    sizes = {name: step.replicas for name, step in steps.items()}
    grown = sum(max(0, size - before.get(name, 0)) for name, size in sizes.items())
    if grown:
        assert sum(each.alive for each in found) + grown <= aim.replicas + aim.policy.surge
    if any(each.alive for each in found if each.fingerprint != aim.target):
        serving = sum(len(each.serving) for each in found)
        left = sum(len(each.serving & steps[each.fingerprint].ring) for each in found)
        given_up = sum(
            not each_pod.is_warm and each_pod.warm.reason != "Warming" for each in found for each_pod in each.pods
        )
        surplus = sum(max(0, len(each.serving) - max(each.replicas, sizes[each.fingerprint])) for each in found)
        assert left >= min(serving, aim.replicas - given_up - (aim.policy.surge == 0)) - surplus


@pytest.mark.heavy
@given(revisions(), GOALS, st.randoms(use_true_random=False))
def test_the_order_of_the_revisions_matters_only_between_equals(found, aim, seed):
    other = list(found)
    seed.shuffle(other)
    keys = [(each.progress is None, each.weight, each.superseded_at is None, each.created) for each in found]
    if len(set(keys)) == len(keys):
        assert rollout.decide(other, aim) == rollout.decide(found, aim)


@pytest.mark.heavy
@given(revisions(), GOALS)
def test_work_that_engines_were_lent_keeps_no_superseded_revision(found, aim):
    """Its own requests ended long ago, but its engines are busy to this moment."""
    busy = [replace(each, quiet_since=aim.now) for each in found]
    counted = Traffic(True, watched_since=aim.now - timedelta(hours=3))
    plan = rollout.decide(busy, replace(aim, traffic=counted)).steps
    for each in busy:
        done = each.superseded_at is not None and aim.now - each.superseded_at >= timedelta(hours=1)
        if done and plan[each.fingerprint].phase is RevisionPhase.SUPERSEDED:
            raise AssertionError(f"{each.fingerprint} stays")


@given(revisions(), GOALS)
def test_own_requests_keep_a_superseded_revision_for_its_time(found, aim):
    """Routers that can be read say more than engines, which a probe or lent work may have kept busy or idle."""
    last = {short(each.fingerprint): aim.now - timedelta(seconds=30) for each in found}
    counted = Traffic(True, last_requests=last, watched_since=aim.now - timedelta(hours=3))
    plan = rollout.decide(found, replace(aim, traffic=counted)).steps
    for each in found:
        if plan[each.fingerprint].phase in GOING and not plan[each.fingerprint].moves:
            assert each.ready == 0


@given(revisions(), GOALS)
def test_after_a_roll_back_what_serves_has_its_replicas_first(found, aim):
    release = rollout.decide(found, aim)
    steps = allot(found, release, aim)
    if release.steps[aim.target].phase is not RevisionPhase.ROLLED_BACK:
        return
    (serving,) = [each for each in found if steps[each.fingerprint].phase is RevisionPhase.SERVING]
    if sum(each.alive for each in found) < aim.replicas + aim.policy.surge and serving.alive < aim.replicas:
        assert steps[serving.fingerprint].replicas > serving.alive
