from datetime import timedelta

from promptgroup_operator.passes.lending import MEMBER_LIFETIME, Lending, member, pool_of
from promptgroup_operator.world.load import GroupLoad, PoolMember
from support.builders import FINGERPRINT, NOW, group, pod, revision

SIZED = {"replicas": None, "sizing": {"minReplicas": 2, "maxReplicas": 8, "targets": {"ttft": "300ms"}}}
LOAD = GroupLoad(60.0, None)


def seen(name="support", **fields):
    found = group(name=name, **fields)
    return found, member(found, (revision(pods=[pod(), pod("p1")], size=2),), FINGERPRINT, LOAD)


def turn(pools, group, member, now):
    """A pass of the group: it sees the others, then the others see it."""
    found = pools.others(group, now)
    pools.put(group, member, now)
    return found


def test_a_sized_group_is_a_member_with_its_bounds_and_its_target():
    assert seen(**SIZED)[1] == PoolMember("support", LOAD, 2, 8, 2, 0.3)


def test_a_group_of_a_fixed_size_neither_grows_nor_shrinks():
    assert seen(replicas=5)[1] == PoolMember("support", LOAD, 5, 5, 2)


def test_groups_with_the_same_engines_see_each_other_as_they_were_last():
    pools = Lending()
    (one, first), (two, second) = seen("one"), seen("two", replicas=3)
    assert turn(pools, one, first, NOW) == ()
    assert turn(pools, two, second, NOW) == (first,)
    changed = seen("one", replicas=4)[1]
    assert turn(pools, one, changed, NOW) == (second,)
    assert turn(pools, two, second, NOW) == (changed,)


def test_another_model_another_engine_and_who_keeps_to_himself_are_no_members():
    pools = Lending()
    one, first = seen("one")
    turn(pools, one, first, NOW)
    for other in (
        seen("two", model="mistral"),
        seen("two", engine={"args": ["--max-model-len=8192"]}),
        seen("two", routing={"sharing": "Dedicated"}),
        seen("two", access={"type": "APIKey", "apiKey": {"secrets": ["keys"]}}),
        seen("two", routing={"isolation": "Caller"}),
        seen("two", routing={"reportCachedTokens": "Hidden"}),
        seen("two", routing={"allowedEngineFields": ["priority"]}),
    ):
        assert turn(pools, *other, NOW) == ()
        assert turn(pools, one, first, NOW) == ()
    assert pool_of(seen("two", routing={"sharing": "Dedicated"})[0]) is None


def test_a_member_that_goes_or_falls_silent_is_none():
    pools = Lending()
    (one, first), (two, second) = seen("one"), seen("two")
    turn(pools, one, first, NOW)
    assert turn(pools, two, second, NOW + MEMBER_LIFETIME + timedelta(seconds=1)) == ()
    turn(pools, one, first, NOW)
    pools.forget(one.key)
    assert turn(pools, two, second, NOW) == ()


def test_limits_of_callers_make_no_difference():
    pools = Lending()
    one, first = seen("one")
    turn(pools, one, first, NOW)
    assert turn(pools, *seen("two", limits={"default": {"requestsInFlight": 4}}), NOW) == (first,)
