"""The routing table on its way through a file: what is written comes back, and nothing else passes."""

import contextlib
from dataclasses import replace

import orjson
import pytest
from hypothesis import given
from hypothesis import strategies as st

from promptgroup_contract.caller_rules import CachedTokens, CallerLimits, CallerRules, EngineField
from promptgroup_contract.encoding import decode_group, decode_table, encode_group, encode_table
from promptgroup_contract.table import (
    MOST_RANKS,
    Engine,
    Group,
    Policy,
    Prompt,
    PromptRef,
    Revision,
    RoutingTable,
    Sharing,
    Slot,
    SlotState,
    TableError,
    TimeLimits,
)
from promptgroup_router.base.steps import at_once
from promptgroup_router.decision.composition import router_state
from promptgroup_router.feed.slot_address import check_steps
from support.tables import group as support_group
from support.tables import revision as support_revision

words = st.text(alphabet="abcé-", min_size=1, max_size=8)
text = st.text(max_size=20)
states = st.sampled_from(SlotState)
slots = st.builds(
    Slot, st.integers(0, 100), states, st.just("10.0.0.1:8000"), text, text, ranks=st.integers(1, MOST_RANKS)
)
revisions = st.builds(
    Revision,
    fingerprint=words,
    system_bytes=st.integers(0, 10_000),
    tools=st.booleans(),
    weight=st.integers(0, 100),
    slots=st.lists(slots, max_size=4, unique_by=lambda slot: slot.index).map(
        lambda found: tuple(sorted(found, key=lambda slot: slot.index))
    ),
    tokens=st.integers(0, 10_000),
    engine=st.builds(
        Engine,
        text,
        st.integers(0, 10**9),
        st.integers(0, 10**6),
        st.integers(0, 10**6),
        unranked=st.frozensets(words, max_size=3),
    ),
    served_apis=st.none() | st.frozensets(words, max_size=3),
    prompt_from=st.none() | st.builds(PromptRef, st.sampled_from(["ConfigMap", "Secret"]), words),
    lends=st.booleans(),
    prompt=st.none() | st.builds(Prompt, text, text),
)
numbers = st.integers(0, 10**9)
limits = st.builds(CallerLimits, numbers, numbers, numbers, numbers, st.integers(1, 1000))
rules = st.builds(
    CallerRules,
    allowed=st.frozensets(st.sampled_from(EngineField)),
    salted=st.none() | st.frozensets(words, max_size=3),
    cached_tokens=st.sampled_from(CachedTokens),
    default=limits,
    named=st.dictionaries(text, limits, max_size=3).map(lambda found: tuple(sorted(found.items()))),
)
groups = st.builds(
    Group,
    namespace=words,
    name=words,
    model=words,
    created=text,
    revisions=st.lists(revisions, max_size=3, unique_by=lambda each: each.fingerprint).map(tuple),
    policy=st.sampled_from(Policy),
    sharing=st.sampled_from(Sharing),
    load_factor_percent=st.integers(100, 10_000),
    session_header=words,
    time_limits=st.builds(TimeLimits, st.integers(0, 3600), st.integers(0, 3600)),
    callers=rules,
)
tables = st.builds(
    RoutingTable, st.lists(groups, max_size=3, unique_by=lambda each: (each.namespace, each.name)).map(tuple), text
)
json = st.recursive(
    st.none() | st.booleans() | st.integers(-5, 5) | text,
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(text, inner, max_size=3),
    max_leaves=8,
)


@pytest.mark.heavy
@given(tables)
def test_a_table_comes_back_as_it_was_written(table):
    assert decode_table(orjson.loads(orjson.dumps(encode_table(table)))) == table


@pytest.mark.heavy
@given(tables, json)
def test_fields_of_a_newer_operator_are_left_alone(table, value):
    encoded = encode_table(table)
    encoded["later"] = value
    for group in encoded["groups"]:
        group["later"] = value
        for revision in group["revisions"]:
            revision["later"] = value
            if "engine" in revision:
                revision["engine"]["later"] = value
    assert decode_table(encoded) == table


anything = st.recursive(
    json
    | st.integers(-1, 2**64)
    | st.floats()
    | st.sampled_from([*SlotState, *Policy, "a:1", "a:" + "9" * 5000, "Secret/a/b/c", "ConfigMap"]),
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(st.sampled_from(["slot", "state", "x"]), inner),
    max_leaves=4,
)


def places_of(value):
    """Yield each object and list of a JSON value that has something in it, with the keys or indexes there."""
    if isinstance(value, dict | list) and value:
        inside = list(value.items() if isinstance(value, dict) else enumerate(value))
        yield value, [key for key, _ in inside]
        for _, each in inside:
            yield from places_of(each)


@given(groups.filter(lambda group: any(each.slots for each in group.revisions)), st.data())
def test_a_route_is_refused_or_served_whatever_stands_in_it(group, data):
    """So no value of a route ends the feed, which serves the groups of all teams."""
    encoded = orjson.loads(orjson.dumps(encode_group(group)))
    for _ in range(data.draw(st.integers(1, 3))):
        place, keys = data.draw(st.sampled_from(list(places_of(encoded))))
        place[data.draw(st.sampled_from(keys))] = data.draw(anything)
    try:
        found = decode_group("a", "b", encoded)
        at_once(check_steps(found, ()))
    except TableError:
        return
    state = router_state()
    state.install(RoutingTable((found,)), "kubernetes", 0.0)
    assert state.loaded
    assert decode_table(orjson.loads(orjson.dumps(encode_table(state.index.table)))) == state.index.table
    assert state.exposition(1.0, 0)


@pytest.mark.parametrize(
    "field", ["slot", "weight", "tokens", "systemBytes", "messages", "kvTokens", "stepTokens", "maxSequences"]
)
@pytest.mark.parametrize("number", [2**32 - 1, 2**32, 2**53 - 1, 2**53, 2**63, 2**64 - 1])
def test_a_large_number_is_refused_or_served(field, number):
    encoded = encode_group(replace(support_group("b"), revisions=(support_revision(engine=Engine("one", 1, 1, 1, 1)),)))
    first = encoded["revisions"][0]
    place = first["slots"][0] if field == "slot" else first["engine"] if field in first["engine"] else first
    place[field] = number
    if number > (2**32 - 1 if field == "slot" else 2**53 - 1):
        with pytest.raises(TableError, match=f"{field} is {number}, expected a whole number of at most"):
            decode_group("a", "b", encoded)
        return
    state = router_state()
    state.install(RoutingTable((decode_group("a", "b", encoded),)), "kubernetes", 0.0)
    assert state.exposition(1.0, 0)


@pytest.mark.heavy
@given(tables.filter(lambda table: table.groups), json, st.data())
def test_a_field_of_another_kind_is_refused_and_nothing_else_is_raised(table, value, data):
    encoded = encode_table(table)
    revisions = [revision for group in encoded["groups"] for revision in group["revisions"]]
    engines = [revision["engine"] for revision in revisions if "engine" in revision]
    place = data.draw(st.sampled_from([encoded, *encoded["groups"], *revisions, *engines]))
    place[data.draw(st.sampled_from(sorted(place)))] = value
    with contextlib.suppress(TableError):
        decode_table(encoded)
