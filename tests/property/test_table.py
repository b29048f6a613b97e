"""The routing table on its way through a file: what is written comes back, and nothing else passes."""

import contextlib

import orjson
import pytest
from hypothesis import given
from hypothesis import strategies as st

from promptgroup_router.contract.caller_rules import CachedTokens, CallerLimits, CallerRules, EngineField
from promptgroup_router.contract.encoding import decode_table, encode_table
from promptgroup_router.contract.table import (
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

words = st.text(alphabet="abcé-", min_size=1, max_size=8)
text = st.text(max_size=20)
states = st.sampled_from(SlotState)
slots = st.builds(Slot, st.integers(0, 100), states, st.just("10.0.0.1:8000"), text, text)
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
    engine=st.builds(Engine, text, st.integers(0, 10**9), st.integers(0, 10**6), st.integers(0, 10**6)),
    prompt_from=st.none() | st.builds(PromptRef, st.sampled_from(["ConfigMap", "Secret"]), words),
    lends=st.booleans(),
    prompt=st.none() | st.builds(Prompt, text, text),
)
numbers = st.integers(0, 10**9)
limits = st.builds(CallerLimits, numbers, numbers, numbers, numbers, st.integers(1, 1000))
rules = st.builds(
    CallerRules,
    allowed=st.frozensets(st.sampled_from(EngineField)),
    salted=st.frozensets(words, max_size=3),
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
