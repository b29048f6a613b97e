import pytest

from promptgroup_router.contract.caller_encoding import decode, encode
from promptgroup_router.contract.caller_rules import NO_RULES, CallerLimits, CallerRules, EngineField, Priority
from promptgroup_router.contract.encoding import FORMAT, GUARDED_FORMAT, encode_group
from promptgroup_router.contract.table import TableError
from support.tables import group

UNNAMEABLE = (
    "a.allowedEngineHeaders has 'Host', which no group can let pass: name fields in lower case that no connection, "
    "credential, router or gateway needs"
)


def test_defaults_are_not_written():
    assert encode(NO_RULES) == {}
    assert decode(None, "a") == decode({}, "a") == NO_RULES
    assert "callers" not in encode_group(group())


def test_a_field_of_a_later_version_stays_forbidden():
    assert decode({"allowedEngineFields": ["rid", "new_field"]}, "a").allowed == {EngineField.RID}


def test_a_router_that_cannot_isolate_refuses_the_group():
    """Older routers read one format only, and keep the last table that they could read."""
    assert encode_group(group())["format"] == FORMAT
    assert encode_group(group(callers=CallerRules(salted=frozenset(("chat",)))))["format"] == GUARDED_FORMAT != FORMAT


def test_a_weight_is_at_least_one():
    assert decode({"default": {"weight": 0}}, "a").default == CallerLimits()


@pytest.mark.parametrize(
    ("data", "message"),
    [
        (1, "a is a int, expected an object"),
        ({"salted": [1]}, "a: salted has something that is no text, expected a list of texts"),
        ({"default": {"tokensPerDay": -1}}, "a.default: tokensPerDay is -1, expected a whole number from 0"),
        (
            {"allowedEngineHeaders": ["x-tenant", "Host"]},
            UNNAMEABLE,
        ),
        (
            {"allowedEngineHeaders": [f"x-{number}" for number in range(17)]},
            "a.allowedEngineHeaders has 17 names, at most 16: name fewer",
        ),
        ({"named": [{}]}, "a.named: caller is missing, expected a string"),
        ({"reportCachedTokens": "No"}, "a: reportCachedTokens is 'No', expected one of Exact, Rounded, Hidden"),
    ],
)
def test_what_cannot_be_used_is_refused(data, message):
    with pytest.raises(TableError) as refused:
        decode(data, "a")
    assert str(refused.value) == message


def test_a_priority_is_read_as_it_was_written_and_normal_is_not_written():
    high, low = CallerLimits(priority=Priority.HIGH), CallerLimits(weight=3, priority=Priority.LOW)
    rules = CallerRules(default=low, named=(("web", high),))
    assert encode(rules) == {
        "default": {"weight": 3, "priority": "Low"},
        "named": [{"caller": "web", "priority": "High"}],
    }
    assert decode(encode(rules), "a") == rules
    assert decode({"default": {"weight": 3}}, "a").default.priority is Priority.NORMAL


def test_the_header_fields_that_pass_are_read_as_they_were_written():
    rules = CallerRules(headers=frozenset(("x-tenant", "baggage")))
    assert encode(rules) == {"allowedEngineHeaders": ["baggage", "x-tenant"]}
    assert decode(encode(rules), "a") == rules
