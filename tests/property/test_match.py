"""Lookups of declared prompts against the plain search through all of them, and what they cost with many."""

import random
import time
from dataclasses import replace

import orjson
import pytest
from hypothesis import given
from hypothesis import strategies as st

from promptgroup_contract.table import ModelAlias
from promptgroup_router.apis.request import ApiKind, parse
from promptgroup_router.apis.tokens import Tokens
from promptgroup_router.base.errors import ApiError
from promptgroup_router.features.near_miss import UnmatchedPrompt
from promptgroup_router.policy.session_locations import SessionLocations
from promptgroup_router.rings.building import build_index
from promptgroup_router.rings.claims import LONGEST, Claim, Claims, common_length
from promptgroup_router.routing.match import ByContent, NoMatch, match_group
from promptgroup_router.routing.points import feature_of
from support.routes import route
from support.tables import group, revision, table

# few letters, so that texts are prefixes of each other; of one, two and four bytes
texts = st.text(alphabet="aö🙂", max_size=6)
tools = st.sampled_from(["", '[{"a":1,"b":2}]', "[2]"])


@given(declared=st.sets(st.tuples(texts, tools), max_size=6), system=texts, given_tools=tools, data=st.data())
def test_the_longest_declared_prefix_wins_whether_its_text_is_known_or_not(declared, system, given_tools, data):
    listed = data.draw(st.permutations(sorted(declared)))
    known = data.draw(st.lists(st.booleans(), min_size=len(listed), max_size=len(listed)))
    groups = [
        group(f"g{number}", revision(text, tools=spelled, known=each))
        for number, ((text, spelled), each) in enumerate(zip(listed, known, strict=True))
    ]
    body = {"model": "llama", "messages": [{"role": "system", "content": system}]}
    if given_tools:
        body["tools"] = orjson.Fragment(given_tools)
    ask = parse(ApiKind.CHAT, orjson.dumps(body))
    fitting = [
        (len(text.encode()), f"chat/g{number}")
        for number, (text, spelled) in enumerate(listed)
        if spelled == given_tools and system.startswith(text) and (text or spelled)
    ]
    # a model without a group is not served at all
    view = build_index(table(*groups, group("other", revision("never said"))))
    found = match_group(view, ask)
    assert (found.claim.label if isinstance(found, ByContent) else None) == (max(fitting)[1] if fitting else None)


# --- Namespaces ---------------------------------------------------------------------------------------------------

namespaces = st.sampled_from(["a", "b", "c"])
declarations = st.lists(st.tuples(namespaces, texts, tools, st.booleans()), max_size=10)


def claim_of(number, namespace, text, spelled, known):
    fields = revision(text, tools=spelled)
    return Claim(
        number,
        namespace,
        fields.fingerprint,
        len(text.encode()),
        text if known else None,
        spelled if known else "",
        age=((False, ""), f"{number:09}"),
    )


def plain_match(declared, given_tools, system, namespace):
    """The definition: of the oldest claims on each prefix, the longest in the namespace of the request."""
    first = {}
    for number, (where, text, spelled, _) in enumerate(declared):
        first.setdefault((where, text, spelled), number)
    fitting = [
        (number, where, text)
        for (where, text, spelled), number in first.items()
        if spelled == given_tools and system.startswith(text)
    ]
    if not fitting:
        return None
    where = namespace or min(fitting)[1]
    return max(((len(text.encode()), number) for number, each, text in fitting if each == where), default=(0, None))[1]


@given(declared=declarations, system=texts, given_tools=tools, namespace=st.sampled_from(["", "a", "b", "c"]))
def test_a_lookup_finds_what_a_search_through_all_claims_finds(declared, system, given_tools, namespace):
    # one prompt is read or unread wherever it is declared
    read = {(text, spelled): known for _, text, spelled, known in declared}
    declared = [(where, text, spelled, read[text, spelled]) for where, text, spelled, _ in declared]
    claims = Claims(claim_of(number, *each) for number, each in enumerate(declared))
    assert claims.match(given_tools, system, namespace) == plain_match(declared, given_tools, system, namespace)


@given(declared=declarations, system=texts, namespace=namespaces, added=st.tuples(texts, tools, st.booleans()))
def test_a_younger_claim_of_another_namespace_takes_no_request(declared, system, namespace, added):
    claims = [claim_of(number, *each) for number, each in enumerate(declared)]
    other = claim_of(len(claims), "z", *added)
    for given_tools in ("", "[2]"):
        before = Claims(claims).match(given_tools, system)
        after = Claims([*claims, other]).match(given_tools, system)
        assert after == before or before is None
        assert Claims([*claims, other]).match(given_tools, system, namespace) == Claims(claims).match(
            given_tools, system, namespace
        )


words = st.sampled_from(["llama", "qwen", "gpt"])
spread = st.lists(
    st.tuples(namespaces, st.sampled_from(["g", "h", "gpt"]), words, st.lists(words, max_size=2), texts), max_size=6
)


def groups_of(listed):
    """Return groups in the order in which they came, each with its aliases; no two of one name and namespace."""
    groups = {}
    for number, (namespace, name, model, aliases, text) in enumerate(listed):
        created = f"2026-01-{number + 1:02}T00:00:00Z"
        names = tuple(ModelAlias(each, created) for each in dict.fromkeys(aliases) if each != model)
        groups[namespace, name] = group(
            name, revision(text or "?"), namespace=namespace, model=model, created=created, aliases=names
        )
    return groups


def outcome(view, model, system, namespace=""):
    body = {"model": model, "messages": [{"role": "system", "content": system}, {"role": "user", "content": "Hi"}]}
    try:
        found = match_group(view, parse(ApiKind.CHAT, orjson.dumps(body)), namespace=namespace)
    except ApiError as error:
        return error.code
    if isinstance(found, NoMatch):
        return "none", found.model.namespace, found.model.model
    return ("content", found.claim.label) if isinstance(found, ByContent) else ("name", found.group.label)


@given(listed=spread, old=st.booleans(), model=words, stolen=st.lists(words, min_size=1, max_size=3), system=texts)
def test_an_alias_that_another_namespace_gets_changes_no_request_that_was_served(listed, old, model, stolen, system):
    """However old its group is: aliases are as old as they are."""
    groups = groups_of(listed)
    made = "2025-01-01T00:00:00Z" if old else "2026-03-01T00:00:00Z"
    evil = group("evil", revision("x"), namespace="z", model="evil-model", created=made)
    names = tuple(ModelAlias(each, "2026-03-01T00:00:00Z") for each in dict.fromkeys(stolen))
    thief = replace(evil, revisions=(revision(system or "?"),), aliases=names)
    before, after = (build_index(table(*groups.values(), each)) for each in (evil, thief))
    for asked in (model, "gpt", "evil-model", "g"):
        for namespace in ("", "a", "b", "c"):
            was = outcome(before, asked, system, namespace)
            if isinstance(was, tuple) and "evil-model" not in was:
                assert outcome(after, asked, system, namespace) == was


@given(listed=spread, name=st.sampled_from(["late", "gpt", "llama"]), model=words, declared=texts, system=texts)
def test_a_younger_group_of_another_namespace_takes_no_request_by_an_alias_that_had_a_group(
    listed, name, model, declared, system
):
    groups = groups_of(listed).values()
    late = group(name, revision(declared or "?"), namespace="z", model=model, created="2026-03-01T00:00:00Z")
    before, after = (build_index(table(*each)) for each in ([*groups, group("other")], [*groups, group("other"), late]))
    for asked in before.aliases:
        was, now = (outcome(view, asked, system) for view in (before, after))
        assert now == was or (was[0] == "none" and now == ("content", f"z/{name}"))


known = st.sampled_from(["g", "h", "gpt", "llama", "a/g", "b/h", "z/g"])
crowded = st.lists(
    st.tuples(namespaces, st.sampled_from(["g", "h", "gpt", "llama"]), known, st.lists(words, max_size=1), texts),
    max_size=6,
)


@given(listed=crowded, name=st.sampled_from(["late", "g", "gpt", "llama"]), model=known, declared=texts, system=texts)
def test_a_younger_group_of_another_namespace_takes_no_request_whatever_name_it_has(
    listed, name, model, declared, system
):
    """Its name and its model may be the model, the name and the full name of others."""
    groups = groups_of(listed).values()
    late = group(name, revision(declared or "?"), namespace="z", model=model, created="2026-03-01T00:00:00Z")
    first = group("other", revision("never said"), created="2025-01-01T00:00:00Z")
    before, after = (build_index(table(*each)) for each in ([first, *groups], [first, *groups, late]))
    for asked in ("g", "h", "gpt", "llama", "a/g", "b/h", "z/g", "z/gpt"):
        for namespace in ("", "a", "b", "c"):
            was, now = (outcome(view, asked, system, namespace) for view in (before, after))
            if isinstance(was, tuple):
                assert now == was or (not namespace and was[0] == "none" and now == ("content", f"z/{name}"))
    for label in after.names:
        body = orjson.dumps({"model": "llama", "messages": [{"role": "user", "content": "Hi"}]})
        found = match_group(after, parse(ApiKind.CHAT, body), label).group.label
        assert found == (label if "/" in label else before.names.get(label, after.names[label]).label)


# --- Near misses --------------------------------------------------------------------------------------------------


@given(declared=st.sets(texts, max_size=10), text=texts)
def test_the_claims_that_begin_like_a_text_come_with_what_they_have_in_common(declared, text):
    listed = sorted(declared)
    claims = Claims(claim_of(number, "a", each, "", True) for number, each in enumerate(listed))
    found = list(claims.alike("", text))
    shared = {each: common_length(each, text) for each in listed}
    for claim, characters in found:
        assert characters <= shared[claim.system]
    # for every share of a text that is asked for, the first that has it has as much in common as any
    for share in (0.3, 0.5, 0.9):
        near = [characters for claim, characters in found if characters >= share * len(claim.system)]
        plain = [shared[each] for each in listed if shared[each] >= share * len(each)]
        assert near[:1] == ([max(plain)] if plain else [])


@given(declared=st.sets(texts, max_size=20))
def test_the_longest_claims_are_the_longest(declared):
    claims = Claims(claim_of(number, "a", each, "", True) for number, each in enumerate(sorted(declared)))
    lengths = sorted((len(each) for each in declared), reverse=True)[:LONGEST]
    assert [len(claim.system) for claim in claims.longest("")] == lengths


# --- Cost ---------------------------------------------------------------------------------------------------------


def cost(claims, requests):
    """Return the least CPU time of one look-up each, of several rounds: what else runs only adds to it."""
    found = []
    for _ in range(9):
        began = time.process_time_ns()
        for each in requests:
            claims.match("", each)
        found.append(time.process_time_ns() - began)
    return min(found) / len(requests)


def declared_texts(count, common, size):
    draw = random.Random(count)
    return [common + f"{number:06}" + draw.randbytes(size // 2).hex() for number in range(count)]


@pytest.mark.heavy
def test_ten_thousand_claims_cost_what_ten_cost():
    few, many = declared_texts(10, "You are ", 200), declared_texts(10_000, "You are ", 200)
    costs = []
    for texts_ in (few, many):
        claims = Claims(claim_of(number, "a", text, "", True) for number, text in enumerate(texts_))
        requests = [texts_[number * len(texts_) // 500] + " And more." for number in range(500)]
        assert claims.match("", requests[0]) == 0
        costs.append(cost(claims, requests))
    assert costs[1] < 4 * costs[0]


def test_a_hundred_long_claims_with_a_common_start_cost_what_two_cost():
    common = "word " * 56_000
    costs = []
    for count in (2, 100):
        texts_ = declared_texts(count, common, 200)
        claims = Claims(claim_of(number, "a", text, "", True) for number, text in enumerate(texts_))
        costs.append(cost(claims, [text + " And more." for text in texts_[:2]] * 20))
        assert claims.match("", common + "else") is None
        assert [each.characters for each in claims.alike("", common + "else")] == [len(common)]
    assert costs[1] < 3 * costs[0]


@pytest.mark.parametrize("asked", ["declared text and more", "a near miss"])
def test_a_request_costs_the_same_beside_two_long_prompts_and_beside_a_hundred(asked):
    common = "word " * 56_000
    system = common + ("000001 end. More." if asked == "declared text and more" else "almost")
    body = {"model": "llama", "messages": [{"role": "system", "content": system}, {"role": "user", "content": "Hi"}]}
    parsed = parse(ApiKind.CHAT, orjson.dumps(body))
    costs = []
    for count in (2, 100):
        groups = [group(f"g{number}", revision(f"{common}{number:06} end.", 1)) for number in range(count)]
        view, locations, tokens = build_index(table(*groups)), SessionLocations(), Tokens()
        rounds = []
        for _ in range(7):
            began = time.process_time_ns()
            for _ in range(3):
                found = route(view, parsed, {}, locations=locations, tokens=tokens, now=0.0)
            rounds.append(time.process_time_ns() - began)
        unmatched = feature_of(found.features, UnmatchedPrompt)
        near = unmatched is not None and unmatched.near_miss is not None
        assert (found.group, not near) == (("chat/g1", True) if "declared" in asked else ("-", False))
        costs.append(min(rounds))
    assert costs[1] < 3 * costs[0]
