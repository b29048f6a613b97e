"""What holds of every change of the number of replicas, whatever the windows, the policies and the past."""

from datetime import timedelta

from hypothesis import given
from hypothesis import strategies as st

from promptgroup_operator.api.prompt_group import Behavior, PolicyType, ScaleDownRules, ScaleUpRules, ScalingPolicy
from promptgroup_operator.api.prompt_group import SelectPolicy as Select
from promptgroup_operator.sizing.behavior import pace
from promptgroup_operator.world.sizing_history import Past, Recommendation, SizeChange
from support.builders import NOW, ago

POLICY = st.builds(
    ScalingPolicy, type=st.sampled_from(PolicyType), value=st.integers(1, 60), period_seconds=st.integers(1, 90)
)


def rules(of, select):
    return st.builds(
        of,
        stabilization_window_seconds=st.sampled_from([0, 20, 60]),
        select_policy=select,
        policies=st.lists(POLICY, min_size=1, max_size=3),
    )


def behaviors(select):
    return st.builds(Behavior, scale_up=rules(ScaleUpRules, select), scale_down=rules(ScaleDownRules, select))


NUMBERS = st.integers(1, 20)
AGO = st.integers(0, 90).map(lambda seconds: ago(seconds=seconds))
PASTS = st.builds(
    Past,
    st.lists(st.builds(Recommendation, NUMBERS, st.just(ago(seconds=100)), AGO), max_size=4).map(tuple),
    st.lists(st.builds(SizeChange, AGO, st.integers(-9, 9).filter(bool)), max_size=4).map(tuple),
)


@given(PASTS, NUMBERS, NUMBERS, behaviors(st.sampled_from(Select)), st.floats(0, 0.999))
def test_windows_and_policies_only_hold_back_and_nothing_more_may_be_done_before_the_next_look(
    past, current, wanted, behavior, part
):
    paced = pace(past, current, wanted, behavior, NOW)
    assert min(current, wanted) <= paced.value <= max(current, wanted)
    wait = paced.requeue_after if paced.requeue_after is not None else timedelta(seconds=180)
    assert wait > timedelta()
    sooner = pace(past, current, wanted, behavior, NOW + wait * part)
    if paced.value < wanted:
        assert sooner.value <= paced.value
    if paced.value > wanted:
        assert sooner.value >= paced.value


@given(PASTS, NUMBERS, NUMBERS, behaviors(st.sampled_from([Select.MAX, Select.MIN])))
def test_who_looks_again_when_told_gets_what_is_asked_for(past, current, wanted, behavior):
    now = NOW
    for _ in range(100):
        past = past.recommending(wanted, current, now)
        paced = pace(past, current, wanted, behavior, now)
        past, current = past.changing(paced.value - current, now), paced.value
        if paced.requeue_after is None:
            break
        now += paced.requeue_after
    assert current == wanted
