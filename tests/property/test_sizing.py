"""What holds of every decision of sizing, whatever the load."""

import itertools
import math
from dataclasses import replace
from datetime import UTC, datetime, timedelta

import pytest
from hypothesis import assume, given
from hypothesis import strategies as st

from promptgroup_operator.api.prompt_group import SizingSpec
from promptgroup_operator.sizing import limits
from promptgroup_operator.sizing.limits import Target
from promptgroup_operator.sizing.model import fit
from promptgroup_operator.sizing.prefill_rate import prefill_rate
from promptgroup_operator.sizing.recommend import SizingInput, decide
from promptgroup_operator.sizing.shared import split
from promptgroup_operator.world.load import GroupLoad, PromptDrift, TierReach
from promptgroup_operator.world.sizing_history import NEW
from support.examples import examples
from support.loads import load

NOW = datetime(2026, 11, 3, 12, 0, 0, tzinfo=UTC)
SIZING = SizingSpec.model_validate({"minReplicas": 1, "maxReplicas": 40, "targets": {"ttft": "300ms"}})


def behind(seen: GroupLoad, tiers: TierReach, brought: float) -> GroupLoad:
    """Return the load of engines whose tiers brought such a share of what was found."""
    return replace(seen, tiers=tiers, engines=replace(seen.engines, tiered=brought * seen.engines.hits))


without_tiers = st.builds(
    load,
    st.floats(0, 200),
    replicas=st.floats(1, 20),
    hit_rate=st.floats(0, 1),
    usage=st.floats(0, 1),
    sessions=st.floats(0, 2000),
    history=st.floats(0, 20_000),
    p95=st.none() | st.floats(0.01, 20),
    drift=st.none() | st.builds(PromptDrift, st.floats(0, 1), st.integers(0, 32_000), st.just(32_000)),
    stale=st.sampled_from(["", "Prometheus does not answer"]),
    waiting=st.floats(0, 200),
    held=st.floats(0, 100),
    coverage=st.floats(0, 1),
    kv_tokens=st.sampled_from([0, 60_000, 400_000]),
    prefill_rate=st.sampled_from([0.0, 10_000.0]),
    prefill_busy=st.none() | st.floats(0, 50),
    computed=st.none() | st.floats(0, 100_000),
    preemptions=st.none() | st.floats(0, 5),
    opening=st.none() | st.floats(0.01, 1),
)
loads = st.builds(behind, without_tiers, st.sampled_from(TierReach), st.floats(0, 1))


@pytest.mark.heavy
@given(loads | st.none(), st.none() | st.integers(0, 60), st.integers(1, 20), st.integers(0, 20), st.data())
def test_bounds_hold_and_policies_too(seen, current, low, more, data):
    sizing = SIZING.model_copy(update={"min_replicas": low, "max_replicas": low + more})
    history, now = NEW, NOW
    for _ in range(3):
        verdict = decide(sizing, SizingInput(current, current or 0, "a", seen), history, now)
        assert low <= verdict.value <= low + more
        if current is not None and low <= current <= low + more:
            assert verdict.value <= max(2 * current, current + 4)
            assert verdict.value >= min(current - 1, math.floor(0.9 * current))
        assert verdict.requeue_after is not None and timedelta() < verdict.requeue_after <= timedelta(seconds=15)  # noqa: PT018
        current, history = verdict.value, verdict.history
        seen, now = data.draw(loads | st.none()), now + timedelta(minutes=data.draw(st.integers(1, 10)))


quiet = st.builds(load, st.just(0), running=st.just(0.0), usage=st.just(0.0), sessions=st.just(0), p95=st.none())


@pytest.mark.heavy
@given(
    st.integers(1, 40),
    st.lists(st.tuples(loads | quiet | st.none(), st.integers(1, 10), st.booleans()), min_size=2, max_size=6),
)
def test_the_number_does_not_fall_while_several_revisions_have_replicas(current, looks):
    history, now = NEW, NOW
    for seen, minutes, releasing in looks:
        verdict = decide(SIZING, SizingInput(current, current, "a", seen, releasing=releasing), history, now)
        assert verdict.value >= current or not releasing
        current, history, now = verdict.value, verdict.history, now + timedelta(minutes=minutes)


@given(loads, st.integers(1, 40))
def test_unknown_never_changes_the_number(seen, current):
    unknown = seen.stale != "" or seen.engines.coverage < 0.5 or (prefill_rate(seen) == 0 and seen.engines.queries > 0)
    assume(unknown)
    verdict = decide(SIZING, SizingInput(current, current, "a", seen), NEW, NOW)
    assert (verdict.value, verdict.active) == (current, False)


@given(
    st.floats(0.1, 100), st.floats(1, 4), st.floats(1, 20), st.floats(0, 1), st.floats(0.01, 0.2), st.floats(10, 300),
    st.integers(0, 30),
)  # fmt: skip
def test_more_demand_never_takes_fewer_replicas(requests, factor, replicas, hit_rate, usage, sessions, waiting):  # noqa: PLR0917
    """Of sessions that fit: the same hit rate with more of them than fit says that replicas would raise it."""

    def model(by):
        seen = load(
            requests * by, replicas=replicas, hit_rate=hit_rate, usage=usage * by, sessions=sessions * by, p95=None,
            running=requests, waiting=waiting * by,
        )  # fmt: skip
        return fit(seen)

    few, many = model(1), model(factor)
    assume(many.resident(replicas) == 1)
    least_of_few, least_of_many = (limits.least_replicas(each, 1, 1000, Target(0.3)) for each in (few, many))
    assert least_of_few <= least_of_many


@given(
    st.floats(1, 30), st.integers(2, 20), st.floats(0.1, 1), st.integers(0, 20_000), st.floats(0.1, 20),
    st.floats(0, 100), st.floats(1, 5),
)  # fmt: skip
def test_drift_never_adds_replicas(requests, current, share, at, late, waiting, longer):  # noqa: PLR0917
    """A load that is well: prompts begin to depart, hits fall, requests wait, run longer and come late."""
    usage = requests / current / 40
    well = load(requests, replicas=current, hit_rate=0.94, usage=usage, sessions=4 * requests)
    assume(decide(SIZING, SizingInput(current, current, "a", well), NEW, NOW).value <= current)
    drifting = load(
        requests, replicas=current, hit_rate=0.94 * (1 - share), usage=min(1.0, usage * longer), sessions=4 * requests,
        p95=late, waiting=waiting, drift=PromptDrift(share, at, 32_000),
    )  # fmt: skip
    assume(drifting.engines.queries * (1 - 0.94 * (1 - share)) / 10_000 / current > 0.9 or longer < 1.01)
    assert decide(SIZING, SizingInput(current, current, "a", drifting), NEW, NOW).value <= current


@pytest.mark.slow
@examples(25)
@given(st.floats(0.5, 60), st.floats(0.5, 0.99), st.floats(0.02, 0.3), st.integers(1, 20), st.floats(0.5, 2))
def test_a_steady_load_settles(requests, hit_rate, usage, start, wrong):
    """Closed loop with engines that are up to twice as slow or as fast as modelled; replicas start within 2 minutes."""
    current, serving, history, now = start, float(start), NEW, NOW
    seen_with, asked, changes = [float(start)] * 4, [start] * 8, []
    for look in range(4 * 90):
        seen_with = [*seen_with[1:], serving]
        replicas = sum(seen_with) / 4
        work = wrong * requests * 10_000 * (1 - hit_rate) / 10_000 / replicas
        held = min(1.0, usage * requests / 4 / replicas)
        busy = min(0.97, work + (1 - min(1, work)) * 4 * held / (1 + 4 * held))
        late = wrong * (1 - hit_rate) * (2 + 3 / (1 - busy)) + 0.02
        seen = load(requests, replicas=replicas, hit_rate=hit_rate, usage=held, sessions=5 * requests, p95=late)
        verdict = decide(SIZING, SizingInput(current, round(serving), "a", seen), history, now)
        if verdict.value != current:
            changes.append((look, verdict.value - current))
        current, history, now = verdict.value, verdict.history, now + timedelta(seconds=15)
        asked = [*asked[1:], current]
        serving = float(min(asked))
    turns = sum(a * b < 0 for (_, a), (_, b) in itertools.pairwise(changes))
    assert turns <= 1, changes
    assert all(look < 4 * 60 for look, _ in changes), changes


@given(
    st.integers(0, 100), st.lists(st.tuples(st.floats(1e-6, 100), st.integers(0, 10), st.integers(0, 20)), min_size=1)
)
def test_a_pool_is_split_within_bounds_and_in_whole_replicas(total, members):
    weights = [weight for weight, _, _ in members]
    bounds = [(low, low + more) for _, low, more in members]
    parts = split(total, weights, bounds)
    assert all(low <= part <= high for part, (low, high) in zip(parts, bounds, strict=True))
    assert sum(parts) == min(max(total, sum(low for low, _ in bounds)), sum(high for _, high in bounds))
