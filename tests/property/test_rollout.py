"""Rollouts: whatever stands, somebody serves and nobody who does is taken away."""

from datetime import timedelta

from hypothesis import given
from hypothesis import strategies as st

from promptgroup_operator.rollout import Phase, steps
from promptgroup_router.contract.fingerprint import fingerprint
from support.builders import NOW, ago, cold, pod, revision

HOUR = timedelta(hours=1)
TIMES = st.sampled_from([None, None, ago(minutes=1), ago(minutes=59), ago(hours=1), ago(hours=2)])


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
                weight=draw(st.sampled_from([0, 0, 100])),
                superseded_at=draw(TIMES),
                quiet_since=draw(TIMES),
                replicas=draw(st.integers(0, 5)),
                created=f"2026-11-03T11:00:0{draw(st.integers(0, 3))}Z",
            )
        )
    return made


TARGET = st.sampled_from("abcd").map(fingerprint)
REPLICAS = st.integers(0, 5)


@given(revisions(), TARGET, REPLICAS)
def test_every_revision_has_a_step_and_one_of_them_the_traffic(given_revisions, target, replicas):
    plan = steps(given_revisions, target, replicas, HOUR, NOW)
    assert set(plan) == {target} | {each.fingerprint for each in given_revisions}
    assert sorted(step.weight for step in plan.values()) == [0] * (len(plan) - 1) + [100]
    assert {step.fingerprint for step in plan.values() if step.weight} == {
        step.fingerprint for step in plan.values() if step.phase is Phase.SERVING
    }


@given(revisions(), TARGET, REPLICAS)
def test_the_target_is_on_its_way_or_there(given_revisions, target, replicas):
    step = steps(given_revisions, target, replicas, HOUR, NOW)[target]
    assert step.phase in (Phase.COMING, Phase.SERVING)
    assert (step.replicas, step.superseded_at) == (replicas, None)


@given(revisions(), TARGET, REPLICAS)
def test_the_traffic_goes_to_a_revision_that_is_warm_if_any_was_meant_to_serve(given_revisions, target, replicas):
    plan = steps(given_revisions, target, replicas, HOUR, NOW)
    by_name = {each.fingerprint: each for each in given_revisions}
    serving = next(step.fingerprint for step in plan.values() if step.phase is Phase.SERVING)
    held = [each for each in given_revisions if each.weight > 0 and each.ready > 0 and each.fingerprint != target]
    if held and serving == target:
        wanted = by_name[target]
        assert wanted.ready_below(replicas) >= max(replicas, 1) or (wanted.weight > 0 and wanted.superseded_at is None)


@given(revisions(), TARGET, REPLICAS)
def test_only_what_nobody_misses_retires(given_revisions, target, replicas):
    plan = steps(given_revisions, target, replicas, HOUR, NOW)
    for each in given_revisions:
        step = plan[each.fingerprint]
        if step.phase is Phase.RETIRING:
            assert each.fingerprint != target
            waited = each.superseded_at is not None and NOW - each.superseded_at >= HOUR
            quiet = each.quiet_since is None or NOW - each.quiet_since >= HOUR
            assert each.ready == 0 or (waited and quiet)
        if step.phase is Phase.SUPERSEDED:
            assert step.replicas == each.replicas, "its size is left alone"
            assert step.superseded_at is not None


@given(revisions(), TARGET, REPLICAS, st.randoms(use_true_random=False))
def test_the_order_of_the_revisions_matters_only_between_equals(given_revisions, target, replicas, seed):
    other = list(given_revisions)
    seed.shuffle(other)
    keys = [(each.weight, each.superseded_at is None, each.created) for each in given_revisions]
    if len(set(keys)) == len(keys):
        assert steps(other, target, replicas, HOUR, NOW) == steps(given_revisions, target, replicas, HOUR, NOW)
