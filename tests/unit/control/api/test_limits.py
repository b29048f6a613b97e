import pytest
from pydantic import ValidationError

from promptgroup_contract.caller_rules import NO_LIMITS, CallerLimits, Priority
from promptgroup_operator.api.limits import CallerLimitsSpec, LimitsSpec, caller_limits


def test_limits_that_are_absent_are_none():
    assert caller_limits(CallerLimitsSpec()) == NO_LIMITS
    spec = CallerLimitsSpec.model_validate({"tokensPerDay": 7, "requestsInFlight": 2, "weight": 9, "priority": "Low"})
    assert caller_limits(spec) == CallerLimits(tokens_per_day=7, in_flight=2, weight=9, priority=Priority.LOW)


@pytest.mark.parametrize(
    "limits",
    [{"requestsPerMinute": 0}, {"weight": 0}, {"priority": "low"}, {"priority": 1}, {"tokensPerMinute": 10**12}],
)
def test_a_limit_of_nothing_or_of_everything_is_refused(limits):
    with pytest.raises(ValidationError):
        LimitsSpec.model_validate({"default": limits})
