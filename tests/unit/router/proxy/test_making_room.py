import pytest

from promptgroup_router.proxy.making_room import GRACE_SECONDS, PART, Standing, Use, who_gives_way

NOW = 100.0
OLD, YOUNG = NOW - GRACE_SECONDS, NOW - GRACE_SECONDS / 2


def standing(use=Use.SILENT, network="a", since=OLD):
    return Standing(use, network, since)


def test_nobody_has_to_give_way_where_all_were_just_opened_by_one_network():
    assert who_gives_way([standing(since=YOUNG)] * 40, "a", NOW) == []
    assert who_gives_way([], "a", NOW) == []


@pytest.mark.parametrize("use", Use)
def test_whoever_has_more_of_them_gives_way_at_once_to_another_network(use):
    many = [standing(use, since=YOUNG + number / 1000) for number in range(40)]
    assert who_gives_way(many, "b", NOW) == [0]
    assert who_gives_way(many[:1], "b", NOW) == [], "one each is fair"


def test_those_that_brought_nothing_leave_first_and_uploads_last():
    every = [standing(use) for use in (Use.UPLOADING, Use.KEPT, Use.BEGUN, Use.SILENT)]
    while every:
        assert who_gives_way(every, "a", NOW) == [len(every) - 1]
        every.pop()


def test_the_network_with_the_most_loses_its_oldest():
    every = [standing(network="b", since=OLD - 50), *(standing(since=OLD - number) for number in range(3))]
    assert who_gives_way(every, "c", NOW) == [3]


@pytest.mark.parametrize(("use", "leaving"), [(Use.SILENT, 10), (Use.BEGUN, 10), (Use.KEPT, 1), (Use.UPLOADING, 1)])
def test_many_leave_at_once_where_they_brought_nothing(use, leaving):
    assert len(who_gives_way([standing(use)] * 10 * PART, "a", NOW)) == leaving


def test_no_more_than_those_of_the_first_kind_leave_at_once():
    assert who_gives_way([standing(Use.KEPT)] * 10 * PART + [standing()], "a", NOW) == [10 * PART]
