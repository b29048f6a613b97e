import pytest

from promptgroup_contract.caller_rules import (
    NO_LIMITS,
    NO_RULES,
    CallerLimits,
    CallerRules,
    EngineField,
    Priority,
)
from promptgroup_contract.encoding import FORMAT, GUARDED_FORMAT, encode_group
from promptgroup_contract.wire import UnfitError, codec_of
from support.tables import group


def encode(rules):
    return codec_of(CallerRules).write(rules)


def decode(data):
    return codec_of(CallerRules).read(data)


UNNAMEABLE = (
    "a: allowedEngineHeaders has 'Host', which no group can let pass: name fields in lower case that no connection, "
    "credential, router or gateway needs"
)


def test_defaults_are_not_written():
    assert encode(NO_RULES) == {}
    assert decode({}) == NO_RULES
    assert "callers" not in encode_group(group())


def test_a_field_of_a_later_version_stays_forbidden():
    assert decode({"allowedEngineFields": ["rid", "new_field"]}).allowed == {EngineField.RID}


def test_a_router_that_cannot_isolate_refuses_the_group():
    """Older routers read one format only, and keep the last table that they could read."""
    assert encode_group(group())["format"] == FORMAT
    assert encode_group(group(callers=CallerRules(salted=frozenset(("chat",)))))["format"] == GUARDED_FORMAT != FORMAT


@pytest.mark.parametrize(
    ("data", "message"),
    [
        (1, "a is a number, expected an object"),
        ({"salted": [1]}, "a: salted[0] is 1, expected a text that is not empty"),
        ({"default": {"weight": 0}}, "a: default: weight is 0, expected a whole number from 1"),
        ({"default": {"tokensPerDay": -1}}, "a: default: tokensPerDay is -1, expected a whole number from 0"),
        (
            {"allowedEngineHeaders": ["x-tenant", "Host"]},
            UNNAMEABLE,
        ),
        (
            {"allowedEngineHeaders": [f"x-{number}" for number in range(17)]},
            "a: allowedEngineHeaders has 17 names, at most 16: name fewer",
        ),
        ({"named": [{}]}, "a: named[0]: caller is missing, expected a string"),
        ({"reportCachedTokens": "No"}, "a: reportCachedTokens is 'No', expected one of Exact, Rounded, Hidden"),
    ],
)
def test_what_cannot_be_used_is_refused(data, message):
    with pytest.raises(UnfitError) as refused:
        decode(data)
    assert refused.value.text("a") == message


def test_a_priority_is_read_as_it_was_written_and_normal_is_not_written():
    high, low = CallerLimits(priority=Priority.HIGH), CallerLimits(weight=3, priority=Priority.LOW)
    rules = CallerRules(default=low, named=(("web", high),))
    assert encode(rules) == {
        "default": {"weight": 3, "priority": "Low"},
        "named": [{"caller": "web", "priority": "High"}],
    }
    assert decode(encode(rules)) == rules
    assert decode({"default": {"weight": 3}}).default.priority is Priority.NORMAL


def test_the_header_fields_that_pass_are_read_as_they_were_written():
    rules = CallerRules(headers=frozenset(("x-tenant", "baggage")))
    assert encode(rules) == {"allowedEngineHeaders": ["baggage", "x-tenant"]}
    assert decode(encode(rules)) == rules


def test_a_caller_has_its_own_limits_or_the_default():
    few, many = CallerLimits(requests_per_minute=1), CallerLimits(requests_per_minute=9)
    rules = CallerRules(default=few, named=(("batch", many),))
    assert (rules.limits_of("batch"), rules.limits_of("other")) == (many, few)
    assert CallerRules().limits_of("x") == NO_LIMITS


def test_a_group_isolates_when_some_api_is_salted():
    assert CallerRules(salted=frozenset(("chat",))).isolates
    assert not CallerRules().isolates
