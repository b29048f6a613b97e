import random

import pytest
from opentelemetry.sdk.trace.sampling import TraceIdRatioBased

from promptgroup_router.features.tracing.sampling import ARGUMENT, SAMPLER, Sampling, sampling
from promptgroup_router.http11.trace_context import TraceContext

NAMED = {
    "": Sampling(0.01, parent_based=True),
    "parentbased_always_on": Sampling(1.0, parent_based=True),
    "always_on": Sampling(1.0, parent_based=False),
    "always_off": Sampling(0.0, parent_based=False),
    "parentbased_always_off": Sampling(0.0, parent_based=True),
    "traceidratio": Sampling(0.25, parent_based=False),
    "parentbased_traceidratio": Sampling(0.25, parent_based=True),
}


@pytest.mark.parametrize("name", NAMED)
def test_the_samplers_of_the_specification_are_known(name):
    assert sampling({SAMPLER: name, ARGUMENT: "0.25"}) == NAMED[name]


@pytest.mark.parametrize(
    ("name", "argument", "what"),
    [("ratio", "0.5", SAMPLER), ("traceidratio", "1 %", ARGUMENT), ("traceidratio", "1.5", ARGUMENT)],
)
def test_another_value_is_named(name, argument, what):
    with pytest.raises(ValueError, match=f"^{what} is .* expected"):
        sampling({SAMPLER: name, ARGUMENT: argument})


def test_a_caller_decides_where_callers_may():
    sampled, unsampled = (TraceContext(1, 2, flags) for flags in (1, 0))
    callers, alone = Sampling(0.0, parent_based=True), Sampling(1.0, parent_based=False)
    assert [callers.samples(1, parent) for parent in (sampled, unsampled, None)] == [True, False, False]
    assert [alone.samples(1, parent) for parent in (sampled, unsampled, None)] == [True, True, True]


@pytest.mark.parametrize("ratio", [0.0, 1e-12, 0.01, 0.5, 0.999999, 1.0])
def test_a_ratio_decides_as_the_sdk_does_so_that_all_services_record_the_same_traces(ratio):
    draw, theirs, ours = random.Random(1), TraceIdRatioBased(ratio), Sampling(ratio, parent_based=False)
    for trace in (draw.getrandbits(128) for _ in range(2000)):
        assert ours.samples(trace, None) == theirs.should_sample(None, trace, "").decision.is_sampled()
