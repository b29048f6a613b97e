from promptgroup_router.contract.caller_rules import NO_LIMITS, CallerLimits, CallerRules


def test_a_caller_has_its_own_limits_or_the_default():
    few, many = CallerLimits(requests_per_minute=1), CallerLimits(requests_per_minute=9)
    rules = CallerRules(default=few, named=(("batch", many),))
    assert (rules.limits_of("batch"), rules.limits_of("other")) == (many, few)
    assert CallerRules().limits_of("x") == NO_LIMITS


def test_a_group_isolates_when_some_api_is_salted():
    assert CallerRules(salted=frozenset(("chat",))).isolates
    assert not CallerRules().isolates
