from promptgroup_cli.forecast.reuse import TraceRequest, curve


def ask(*blocks, rest=0, answer=0):
    return TraceRequest(blocks, 10, 10 * len(blocks) + rest, answer)


def test_nothing_is_found_where_nothing_comes_again():
    found = curve([ask(1, 2), ask(3)])
    assert found.hit_rate(10**9) == found.most == 0
    assert found.prompt_tokens == 30
    assert found.requests == 2


def test_a_prompt_is_found_by_a_cache_that_holds_all_since():
    # 21 tokens, 35 others, then 21 again: block 1 was used after block 2, and that after the token that fills no block
    found = curve([ask(1, 2, rest=1), ask(3, 4, 5, answer=5), ask(1, 2, rest=1)])
    assert [found.hit_rate(size) for size in (44, 45, 54, 55)] == [0, 10 / 72, 10 / 72, 20 / 72]
    assert found.most == 20 / 72


def test_the_beginning_stays_longer_than_the_end():
    found = curve([ask(1, 2), ask(3), ask(1, 2, rest=5)])
    # since block 1 was used: itself and block 3; since block 2: that and itself; and the request itself has 25 tokens
    assert [found.hit_rate(size) for size in (24, 25, 29, 30)] == [0, 10 / 55, 10 / 55, 20 / 55]


def test_the_last_token_of_a_prompt_is_always_computed():
    assert curve([ask(1), ask(1)]).most == 9 / 20


def test_what_follows_a_block_that_is_gone_is_not_found():
    found = curve([ask(1, 2, 3), ask(1, 9, 3, rest=1)])
    assert found.most == 10 / 61


def test_a_request_must_fit_beside_what_it_finds():
    found = curve([ask(1), ask(1, 2, 3, answer=70)])
    assert [found.hit_rate(size) for size in (99, 100)] == [0, 10 / 40]


def test_no_requests_find_nothing():
    assert curve([]).hit_rate(1000) == curve([]).most == 0
