import pytest

from promptgroup_router.rings.names import NameConflict, NameKeepers
from support.tables import group

EARLY, LATE = "2026-01-01T00:00:00Z", "2026-02-01T00:00:00Z"


@pytest.mark.parametrize("times", [(EARLY, LATE), (LATE, ""), ("", "")], ids=["times", "one unknown", "both unknown"])
def test_the_oldest_keeps_a_name_and_without_times_the_first_by_name(times):
    first, second = (
        group("x", namespace=namespace, model="m", created=created)
        for namespace, created in zip("ab", times, strict=True)
    )
    for groups in ((first, second), (second, first)):
        keepers = NameKeepers(groups)
        assert keepers.first("x") == keepers.first("m") == first
        assert (keepers.first("a/x"), keepers.first("b/x"), keepers.first("y")) == (first, second, None)
        assert keepers.conflicts({}) == (NameConflict("b/x", "x", "a/x"),)


def test_a_model_that_several_namespaces_serve_is_no_conflict_and_means_no_group():
    keepers = NameKeepers([group("x", namespace="a", created=EARLY), group("y", namespace="b", created=LATE)])
    assert keepers.named("llama") is None
    assert keepers.conflicts({}) == ()


def test_nothing_within_a_namespace_is_a_conflict():
    groups = group("x", model="y", created=EARLY), group("y", created=LATE), group("z", model="chat/y", created=LATE)
    assert NameKeepers(groups).conflicts({}) == ()


def test_an_older_alias_keeps_a_name():
    owner, late = group("x", namespace="a", created=EARLY), group("gpt", namespace="b", created=LATE)
    assert NameKeepers([owner, late]).conflicts({"gpt": owner}) == (NameConflict("b/gpt", "gpt", "a/x"),)
