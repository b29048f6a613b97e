import pytest

from promptgroup_contract.table import ModelAlias
from promptgroup_router.rings.aliases import NO_ALIASES
from promptgroup_router.rings.building import build_index
from support.tables import group, revision, settled, table

EARLY, CREATED, LATER = "2026-11-01T00:00:00Z", "2026-11-03T11:00:00Z", "2026-11-09T00:00:00Z"


def aliased(name, *aliases, since=LATER, **fields):
    return group(name, aliases=tuple(ModelAlias(each, since) for each in aliases), **fields)


def meant(*groups):
    """Namespace → model, of each alias; and the namespace of requests that name none."""
    found = settled(groups)
    return (
        {
            name: {namespace: meaning.model for namespace, meaning in sorted(meanings.items())}
            for name, meanings in found.meanings.items()
            if meanings
        },
        dict(found.first),
        [(each.group, each.alias, each.keeper) for each in found.conflicts],
    )


def test_a_table_without_aliases_costs_nothing():
    assert settled([group("a"), group("b")]) is NO_ALIASES


def test_an_alias_stands_for_the_model_of_its_group():
    assert meant(aliased("a", "gpt-4o", "l8")) == (
        {"gpt-4o": {"chat": "llama"}, "l8": {"chat": "llama"}},
        {"gpt-4o": "chat", "l8": "chat"},
        [],
    )


def test_groups_of_one_model_may_have_one_alias():
    groups = [aliased("a", "gpt", since=LATER), aliased("b", "gpt", since=EARLY)]
    assert meant(*groups) == ({"gpt": {"chat": "llama"}}, {"gpt": "chat"}, [])
    assert settled(groups).meanings["gpt"]["chat"].age == (False, EARLY)


@pytest.mark.parametrize("other", [group("gpt", model="x"), group("b", model="gpt")], ids=["group", "model"])
def test_what_has_the_name_itself_comes_before_an_alias(other):
    assert meant(aliased("a", "gpt", since=EARLY), other) == ({}, {}, [("chat/a", "gpt", f"chat/{other.name}")])


def test_the_full_name_of_a_group_is_nobodys_alias():
    groups = [aliased("a", "x/b", since=EARLY), group("b", namespace="x", model="y", created=LATER)]
    assert meant(*groups) == ({}, {}, [("chat/a", "x/b", "x/b")])


def test_of_two_models_of_a_namespace_that_of_the_oldest_group_has_the_alias():
    young, old = aliased("a", "gpt", since=EARLY, created=LATER), aliased("b", "gpt", model="qwen", created=EARLY)
    expected = {"gpt": {"chat": "qwen"}}, {"gpt": "chat"}, [("chat/a", "gpt", "chat/b")]
    assert meant(young, old) == meant(old, young) == expected
    # of one age: by name
    same = aliased("a", "gpt"), aliased("b", "gpt", model="qwen")
    assert meant(*same)[0] == meant(*reversed(same))[0] == {"gpt": {"chat": "llama"}}


def test_of_two_namespaces_the_one_that_had_the_alias_first_keeps_it():
    """The age of the group says nothing: an old group may get a neighbour's alias at any time."""
    first = aliased("a", "gpt", since=CREATED, created=CREATED)
    old = aliased("b", "gpt", since=LATER, created=EARLY, namespace="evil", model="other")
    assert meant(old, first) == (
        {"gpt": {"chat": "llama", "evil": "other"}},
        {"gpt": "chat"},
        [("evil/b", "gpt", "chat/a")],
    )


@pytest.mark.parametrize("fields", [{"name": "gpt"}, {"model": "gpt"}], ids=["group", "model"])
def test_of_an_alias_and_what_another_namespace_has_itself_the_first_keeps_the_name(fields):
    alias = aliased("a", "gpt", since=CREATED)
    for created, first in ((EARLY, {}), (CREATED, {}), (LATER, {"gpt": "chat"})):
        other = group(**{"name": "b", "namespace": "x", "model": "y", "created": created} | fields)
        found = meant(alias, other)
        assert found[0] == {"gpt": {"chat": "llama"}}
        assert found[1] == first
        assert found[2] == ([] if first else [("chat/a", "gpt", f"x/{other.name}")])


def test_an_alias_of_unknown_age_comes_last():
    groups = [aliased("a", "gpt", since=""), aliased("b", "gpt", since=LATER, namespace="x")]
    assert settled(groups).first == {"gpt": "x"}
    assert settled([groups[0], group("b", model="gpt", namespace="x", created=LATER)]).first == {}
    assert settled(groups[:1]).first == {"gpt": "chat"}


def test_an_alias_has_the_replicas_of_its_model_under_the_same_name():
    view = build_index(table(aliased("a", "gpt"), group("b", revision("other")), group("c", namespace="x")))
    entry = view.models["gpt"]
    assert entry.first is view.models["llama"].tenants["chat"]
    assert list(entry.tenants) == ["chat"]
    assert view.aliases == {"gpt": entry.first}
    assert view.alias_conflicts == ()
