from promptgroup_router.rings.age import age_of, by_age
from support.tables import group


def test_the_earlier_time_is_older_and_an_unknown_one_the_youngest():
    early, late = "2026-01-01T00:00:00Z", "2026-02-01T00:00:00Z"
    assert sorted(["", late, early], key=age_of) == [early, late, ""]


def test_groups_of_one_age_are_ordered_by_their_full_names():
    first, second, unknown = group("b", namespace="a"), group("a", namespace="b"), group("a", created="")
    assert sorted([unknown, second, first], key=by_age) == [first, second, unknown]
