from promptgroup_router.routing.unmatched import LISTED, UnmatchedPrefixes


def test_prefixes_are_counted_and_listed_heaviest_first():
    sketch = UnmatchedPrefixes()
    for prefix, times in ((1, 3), (2, 5), (3, 1)):
        for _ in range(times):
            sketch.add("m", prefix, 100 + prefix)
    assert [(each.hash, each.count, each.error, each.length) for each in sketch.heaviest(2)] == [
        (2, 5, 0, 102),
        (1, 3, 0, 101),
    ]


def test_models_are_apart():
    sketch = UnmatchedPrefixes()
    sketch.add("m", 1, 1)
    sketch.add("n", 1, 1)
    assert {(each.model, each.count) for each in sketch.heaviest()} == {("m", 1), ("n", 1)}


def test_what_is_frequent_stays_however_many_others_pass():
    sketch = UnmatchedPrefixes(capacity=10)
    for number in range(1000):
        sketch.add("m", number % 2, 1)
        sketch.add("m", 1000 + number, 1)
    heaviest = sketch.heaviest(2)
    assert {each.hash for each in heaviest} == {0, 1}
    assert all(500 <= each.count <= 500 + each.error for each in heaviest)
    assert len(sketch.heaviest(100)) == 10


def test_a_newcomer_inherits_the_count_of_the_rarest_as_its_possible_error():
    sketch = UnmatchedPrefixes(capacity=2)
    for prefix in (1, 1, 1, 2, 2, 3):
        sketch.add("m", prefix, 1)
    assert [(each.hash, each.count, each.error) for each in sketch.heaviest()] == [(1, 3, 0), (3, 3, 2)]


def test_the_list_is_short():
    sketch = UnmatchedPrefixes()
    for number in range(LISTED * 2):
        sketch.add("m", number, 1)
    assert len(sketch.heaviest()) == LISTED
