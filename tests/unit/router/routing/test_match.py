from dataclasses import replace

import orjson
import pytest

from promptgroup_contract.fingerprint import canonical_tools
from promptgroup_contract.table import ModelAlias
from promptgroup_router.apis.request import ApiKind, parse
from promptgroup_router.base.errors import ApiError
from promptgroup_router.rings.building import build_index
from promptgroup_router.rings.names import NameConflict
from promptgroup_router.routing.match import ByContent, ByName, NoMatch, match_group
from support.tables import SYSTEM, group, revision, table

TOOLS = [{"name": "b", "a": 1}]
CANON = canonical_tools(TOOLS)


def ask(system: str | None = None, model: str = "llama", **fields):
    messages = [{"role": "user", "content": "Hi"}]
    if system is not None:
        messages.insert(0, {"role": "system", "content": system})
    return parse(ApiKind.CHAT, orjson.dumps({"model": model, "messages": messages} | fields))


def found(view, request, named="", namespace=""):
    match match_group(view, request, named, namespace):
        case ByContent(claim):
            return f"content {claim.label}"
        case ByName(by_name):
            return f"name {by_name.label}"
        case NoMatch(tenant):
            return f"none in {tenant.namespace}"


@pytest.mark.parametrize("known", [True, False], ids=["text known", "by hash"])
class TestByContent:
    def test_the_longest_declared_text_wins(self, known):
        view = build_index(
            table(group("short", revision("You", known=known)), group("long", revision("You are", known=known)))
        )
        assert found(view, ask("You are here")) == "content chat/long"
        assert found(view, ask("You")) == "content chat/short"
        assert found(view, ask("Yo")) == "none in chat"
        assert found(view, ask("you are")) == "none in chat"
        assert found(view, ask()) == "none in chat"

    def test_lengths_are_of_bytes_not_of_characters(self, known):
        view = build_index(table(group("a", revision("Grüße ö ", known=known))))
        assert found(view, ask("Grüße ö an alle")) == "content chat/a"
        assert found(view, ask("Grüße o an alle")) == "none in chat"

    def test_tools_belong_to_the_prefix(self, known):
        view = build_index(table(group("a", revision(known=known)), group("b", revision(tools=CANON, known=known))))
        assert found(view, ask(SYSTEM)) == "content chat/a"
        assert found(view, ask(SYSTEM, tools=TOOLS)) == "content chat/b"
        assert found(view, ask(SYSTEM, tools=[{"a": 1, "name": "b"}])) == "content chat/b"
        assert found(view, ask(SYSTEM, tools=[{"name": "c"}])) == "none in chat"

    def test_a_prompt_of_tools_alone_is_found(self, known):
        view = build_index(table(group("a", revision("", tools=CANON, known=known))))
        assert found(view, ask("anything", tools=TOOLS)) == "content chat/a"
        assert found(view, ask("anything")) == "none in chat"

    def test_another_model_is_another_matter(self, known):
        view = build_index(table(group("a", revision(known=known)), group("b", revision(known=known), model="other")))
        assert found(view, ask(SYSTEM, model="other")) == "content chat/b"


def test_a_text_prompt_is_matched_like_a_system_text():
    view = build_index(table(group("a", revision("You are"))))
    request = parse(ApiKind.TEXT, orjson.dumps({"model": "llama", "prompt": "You are here"}))
    assert found(view, request) == "content chat/a"


def test_by_name_of_the_model_or_of_the_header():
    view = build_index(table(group("a"), group("b", revision("other"))))
    assert found(view, ask(model="a")) == "name chat/a"
    assert found(view, ask(model="chat/b")) == "name chat/b"
    assert found(view, ask(SYSTEM), named="b") == "name chat/b"
    assert found(view, ask(model="whatever"), named="chat/a") == "name chat/a"


def test_a_group_may_be_called_like_the_model_that_it_serves():
    view = build_index(table(group("llama")))
    assert found(view, ask(SYSTEM)) == "content chat/llama"
    assert found(view, ask()) == "name chat/llama"


def refused(view, request, named="", namespace=""):
    with pytest.raises(ApiError) as caught:
        match_group(view, request, named, namespace)
    return caught.value.status, caught.value.code, caught.value.param


def test_what_nobody_serves_is_refused():
    view = build_index(table(group("a")))
    assert refused(view, ask(model="gpt")) == (404, "model_not_found", "model")
    assert refused(view, ask(), "nobody") == (404, "group_not_found", "x-promptgroup")


# --- Several namespaces ---------------------------------------------------------------------------------------------

EARLY, LATE = "2026-01-01T00:00:00Z", "2026-02-01T00:00:00Z"

THEFT = table(
    group("mine", revision("You are."), namespace="a", created="2026-01-01T00:00:00Z"),
    group("thief", revision("You are. Today"), namespace="b", created="2026-01-02T00:00:00Z"),
)


def test_another_namespace_takes_no_requests_by_a_longer_prompt():
    view = build_index(THEFT)
    assert found(view, ask("You are. Today is Sunday.")) == "content a/mine"
    assert found(view, ask("You are. Today is Sunday."), namespace="b") == "content b/thief"


def test_an_undeclared_prompt_stays_in_the_namespace_that_it_names_or_that_served_the_model_first():
    view = build_index(THEFT)
    assert found(view, ask("Something else")) == "none in a"
    assert found(view, ask("Something else"), namespace="b") == "none in b"


def test_a_group_named_like_a_model_of_another_namespace_takes_none_of_its_requests():
    late = group("llama", revision("Read this."), namespace="b", model="other", created="2026-01-02T00:00:00Z")
    view = build_index(table(*THEFT.groups, late))
    assert found(view, ask()) == "none in a"
    assert found(view, ask(), namespace="b") == "name b/llama"
    assert found(view, ask(), "b/llama") == "name b/llama"


@pytest.mark.parametrize(
    ("late", "expected"),
    [
        ({"name": "support"}, "name b/support"),
        ({"model": "support"}, "none in b"),
        ({"model": "a/support"}, None),
    ],
    ids=["its name", "its model", "the full name"],
)
def test_a_younger_group_takes_no_request_by_the_name_of_a_group(late, expected):
    old = group("support", revision("You are."), namespace="a", created=EARLY)
    young = group(**{"name": "x", "namespace": "b", "model": "m", "created": LATE} | late)
    view = build_index(table(young, old))
    for system in (SYSTEM, "Else"):
        assert found(view, ask(system, model="support")) == "name a/support"
        assert found(view, ask(system, model="a/support")) == "name a/support"
        assert found(view, ask(system), "support") == "name a/support"
    assert found(view, ask(), young.name, "b") == f"name b/{young.name}"
    if expected is not None:
        assert found(view, ask(model="support"), namespace="b") == expected
    (name,) = late.values()
    assert view.name_conflicts == (NameConflict(f"b/{young.name}", name, "a/support"),)


def test_an_older_group_keeps_the_name_of_its_model_from_a_group_of_that_full_name():
    old = group("x", revision("You are."), namespace="a", model="openai/gpt", created=EARLY)
    young = group("gpt", revision("z"), namespace="openai", model="m", created=LATE)
    view = build_index(table(old, young))
    assert found(view, ask("You are.", model="openai/gpt")) == "content a/x"
    assert found(view, ask(model="openai/gpt")) == "none in a"
    assert found(view, ask(), "openai/gpt") == "name openai/gpt"
    assert found(view, ask(model="gpt")) == "name openai/gpt"


def test_a_younger_group_takes_no_request_from_a_group_that_is_called_like_their_model():
    old = group("llama", revision("You are."), namespace="a", created=EARLY)
    thief = group("thief", revision("Hello"), namespace="b", created=LATE)
    view = build_index(table(old, thief))
    assert found(view, ask("Hello")) == "name a/llama"
    assert found(view, ask("Hello"), namespace="b") == "content b/thief"
    assert view.name_conflicts == (NameConflict("b/thief", "llama", "a/llama"),)
    # the other way round the content was there before the name
    first = group("m", revision("z"), namespace="a", created="2025-01-01T00:00:00Z")
    view = build_index(table(first, thief, replace(old, created="2027-01-01T00:00:00Z")))
    assert found(view, ask("Hello")) == "content b/thief"


def test_a_name_is_looked_up_in_the_namespace_that_the_request_names():
    view = build_index(table(group("x", namespace="a"), group("x", namespace="b"), group("y", namespace="b")))
    assert found(view, ask(), "x", "b") == "name b/x"
    assert found(view, ask(model="x"), namespace="a") == "name a/x"
    assert refused(view, ask(), "y", "a") == (404, "group_not_found", "x-promptgroup")
    assert refused(view, ask(), "b/y", "a") == (404, "group_not_found", "x-promptgroup")
    assert refused(view, ask(), "", "c") == (404, "model_not_found", "model")


# --- Aliases --------------------------------------------------------------------------------------------------------


def aliased(name, alias, *revisions, since=LATE, **fields):
    return group(name, *revisions, aliases=(ModelAlias(alias, since),), **fields)


def test_an_alias_leads_where_the_model_leads():
    groups = [aliased("a", "gpt", revision("You are")), group("b", revision("You see"))]
    view = build_index(table(*groups))
    for system, expected in (("You are here", "chat/a"), ("You see", "chat/b"), ("Else", None)):
        for namespace in ("", "chat"):
            asked = [found(view, ask(system, model=model), namespace=namespace) for model in ("llama", "gpt")]
            assert asked == [f"content {expected}" if expected else "none in chat"] * 2
    assert refused(view, ask(model="gpt"), namespace="other") == (404, "model_not_found", "model")
    assert found(view, ask(model="gpt"), "b") == "name chat/b"


def test_a_namespace_may_have_an_alias_that_another_one_had_first_for_itself_alone():
    mine = aliased("mine", "gpt", revision("You are"), namespace="a", since=EARLY, created=EARLY)
    thief = aliased("thief", "gpt", revision("You"), namespace="b", model="other", created="2025-01-01T00:00:00Z")
    view = build_index(table(mine, thief))
    for system, expected in (("You are", "content a/mine"), ("You", "none in a"), ("Else", "none in a")):
        assert found(view, ask(system, model="gpt")) == expected
    assert found(view, ask("You are", model="gpt"), namespace="b") == "content b/thief"
    assert found(view, ask("Else", model="gpt"), namespace="b") == "none in b"


@pytest.mark.parametrize("fields", [{"name": "gpt"}, {"model": "gpt"}], ids=["group", "model"])
def test_what_another_namespace_has_itself_and_had_first_is_not_taken_by_an_alias(fields):
    real = group(**{"name": "r", "namespace": "a", "model": "m", "created": EARLY} | fields)
    thief = aliased("thief", "gpt", revision("You"), namespace="b", created="2025-01-01T00:00:00Z")
    alone, both = build_index(table(real)), build_index(table(real, thief))
    for system in ("You", SYSTEM, "Else"):
        assert found(both, ask(system, model="gpt")) == found(alone, ask(system, model="gpt"))
    assert found(both, ask("You", model="gpt"), namespace="b") == "content b/thief"


def test_an_alias_that_came_first_keeps_what_matches_nothing_when_a_model_of_its_name_comes():
    first = aliased("first", "gpt", revision("You are"), namespace="a", since=EARLY, created=EARLY)
    later = group("later", revision("You are. Today"), namespace="b", model="gpt", created=LATE)
    own = group("own", revision("Say"), namespace="b", model="gpt", created=LATE)
    view = build_index(table(first, later, own))
    assert found(view, ask("Else", model="gpt")) == "none in a"
    assert found(view, ask("You are. Today", model="gpt")) == "content a/first"
    assert found(view, ask("Say", model="gpt")) == "content b/own"
    assert found(view, ask("You are. Today", model="gpt"), namespace="b") == "content b/later"
    assert found(view, ask("Else", model="gpt"), namespace="b") == "none in b"


def test_an_old_group_claims_no_prefix_of_a_model_whose_name_it_gets_as_an_alias():
    old = aliased("old", "gpt", revision("You"), namespace="a", since=LATE, created="2025-01-01T00:00:00Z")
    for created, expected in (("2026-01-15T00:00:00Z", "content b/m"), ("2026-03-01T00:00:00Z", "content a/old")):
        model = group("m", revision("You"), namespace="b", model="gpt", created=created)
        assert found(build_index(table(old, model)), ask("You", model="gpt")) == expected


def test_the_full_name_of_a_group_leads_to_it_whoever_has_it_as_an_alias():
    thief = aliased("thief", "chat/a", namespace="b", since=EARLY, created=EARLY)
    view = build_index(table(group("a", created=LATE), thief))
    assert found(view, ask(model="chat/a")) == "name chat/a"
    assert refused(view, ask(model="chat/a"), namespace="b") == (404, "group_not_found", "model")
