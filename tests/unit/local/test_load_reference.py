import pytest

from promptgroup_local.engine.chat import render
from promptgroup_local.load.reference import Exchange, infinite_cache_hit_rate

SYSTEM = {"role": "system", "content": "s" * 640}
USER = {"role": "user", "content": "u" * 640}
ANSWER = "a" * 640
NEXT = [SYSTEM, USER, {"role": "assistant", "content": ANSWER}, {"role": "user", "content": "x"}]


def length(messages: list[dict[str, str]]) -> int:
    return len(render(messages).tokens)


def test_nothing_sent_has_no_hit_rate() -> None:
    assert infinite_cache_hit_rate([]) is None


def test_a_first_request_finds_nothing_unless_the_replica_is_warm() -> None:
    first = Exchange([SYSTEM, USER], ANSWER)
    assert infinite_cache_hit_rate([first]) == 0
    tier1 = render([SYSTEM]).tier1
    warm = infinite_cache_hit_rate([first], warm=[SYSTEM["content"]])
    assert warm == pytest.approx(tier1 // 16 * 16 / length([SYSTEM, USER]))


def test_the_next_turn_finds_the_conversation_and_the_answer() -> None:
    first, second = Exchange([SYSTEM, USER], ANSWER), Exchange(NEXT, "b")
    known = length([SYSTEM, USER]) + 640 // 4 - 1  # the answer's last token is never computed
    expected = known // 16 * 16 / (length([SYSTEM, USER]) + length(NEXT))
    assert infinite_cache_hit_rate([first, second]) == pytest.approx(expected)
    assert infinite_cache_hit_rate([second, first]) != pytest.approx(expected)
