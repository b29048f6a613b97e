from promptgroup_research.simulator.cache import Cache


def test_a_prompt_that_runs_is_found_but_its_last_token():
    cache = Cache(1000, 16)
    assert cache.admit((1, 2), (32, 32), output=10)
    assert cache.find((1, 2), (32, 32)) == 48
    assert cache.find((1, 3), (32, 32)) == 32
    assert (cache.used, cache.held) == (74, 74)


def test_an_answer_is_found_by_the_next_turn():
    cache = Cache(1000, 16)
    cache.admit((1,), (40,), output=24)
    cache.release((1,), (40,), output=24)
    assert cache.find((1, 2), (64, 30)) == 64
    assert (cache.used, cache.held) == (64, 0)


def test_no_room_changes_nothing():
    cache = Cache(100, 16)
    cache.admit((1,), (60,), output=20)
    assert not cache.admit((2,), (10,), output=20)
    assert (cache.used, cache.held, cache.find((2,), (10,))) == (80, 80, 0)


def test_the_end_of_the_longest_unused_goes_first():
    cache = Cache(96, 16)
    for node in (1, 2):
        cache.admit((node,), (40,), output=8)
        cache.release((node,), (40,), output=8)
    assert cache.admit((3,), (10,), output=6)
    assert cache.find((1, 9), (48, 1)) == 32
    assert cache.find((2, 9), (48, 1)) == 48


def test_clearing_forgets():
    cache = Cache(100, 16)
    cache.admit((1,), (60,), output=20)
    cache.clear()
    assert (cache.used, cache.held, cache.find((1, 2), (60, 4))) == (0, 0, 0)
