import json

from promptgroup_router.apis.request import ApiKind, parse
from promptgroup_router.prefixes.leading import LEADING_BYTES, leading_of

RULES = "Answer briefly, politely and in the language of the customer. " * 60


def of(system, kind=ApiKind.CHAT):
    if kind is ApiKind.TEXT:
        return leading_of(parse(kind, json.dumps({"model": "m", "prompt": system}).encode()))
    messages = [{"role": "system", "content": system}, {"role": "user", "content": "hi"}]
    return leading_of(parse(kind, json.dumps({"model": "m", "messages": messages}).encode()))


def test_prompts_with_another_time_on_top_are_one_beginning_and_as_many_texts():
    found = [of(f"2026-11-24 {hour}:30 {RULES}") for hour in range(8, 12)]
    assert len({leading.hash for leading, _ in found}) == 1
    assert len({text for _, text in found}) == 4
    assert {leading.volatile[0][:2] for leading, _ in found} == {("timestamp", 0)}
    assert len({leading.volatile[0].value for leading, _ in found}) == 4


def test_what_stands_behind_the_time_still_tells_prompts_apart():
    one, other = of("12:00:01 " + RULES)[0], of("12:00:01 You translate. " + RULES)[0]
    assert one.hash != other.hash
    assert (
        of("12:00:01 " + "x" * (LEADING_BYTES - 100) + "a")[0].hash
        != of("12:00:01 " + "x" * (LEADING_BYTES - 100) + "b")[0].hash
    )


def test_places_are_told_in_bytes():
    assert of("Müsli 12:00:01 " + RULES)[0].volatile[0].at == 7


def test_a_text_completion_is_cached_under_its_exact_beginning():
    one, other = of("12:00:01 " + RULES, ApiKind.TEXT), of("12:00:02 " + RULES, ApiKind.TEXT)
    assert one[0].hash == other[0].hash
    assert one[1] != other[1]


def test_a_system_text_is_cached_as_a_whole_and_a_text_completion_by_its_beginning():
    begun = "x" * LEADING_BYTES
    for kind, keys in ((ApiKind.CHAT, 2), (ApiKind.TEXT, 1)):
        found = [of(begun + end, kind) for end in ("one", "other")]
        assert len({leading.hash for leading, _ in found}) == 1
        assert len({key for _, key in found}) == keys
