import random
import tracemalloc
from itertools import accumulate

import pytest
from hypothesis import given
from hypothesis import strategies as st

from promptgroup_router.prefixes.leading import VolatileText
from promptgroup_router.undeclared.decay import HALF_LIFE
from promptgroup_router.undeclared.unmatched import (
    BITS,
    CAPACITY,
    Place,
    PrefixSample,
    UnmatchedPrefixes,
    counted,
    decode_sample,
    document,
    merge,
    sampled,
    shared,
)

HOUR = 3600.0


def add(sketch, prefix, times=1, *, model="m", tokens=100, session=0, text=0, now=0.0):
    for _ in range(times):
        sketch.add(model, prefix, 1000 + prefix, tokens=tokens, session=session, text=text, now=now)


def test_prefixes_are_listed_by_the_tokens_of_their_requests():
    sketch = UnmatchedPrefixes()
    add(sketch, 1, 3)
    add(sketch, 2, 5)
    add(sketch, 3, tokens=1000)
    found = sketch.entries(0.0)
    assert [(each.hash, each.tokens, each.requests, each.error, each.length) for each in found] == [
        (3, 1000, 1, 0, 1003),
        (2, 500, 5, 0, 1002),
        (1, 300, 3, 0, 1001),
    ]
    assert [each.prefix_tokens for each in found] == [1000, 100, 100]


def test_models_are_apart_and_a_model_that_is_gone_gives_its_number_back():
    sketch = UnmatchedPrefixes(capacity=2)
    add(sketch, 1)
    add(sketch, 1, model="n")
    assert {(each.model, each.tokens) for each in sketch.entries(0.0)} == {("m", 100), ("n", 100)}
    for number in range(50):
        add(sketch, number, 5, model=f"m{number}")
    assert len(sketch._models) <= 3


def test_what_is_frequent_stays_however_many_others_pass():
    sketch = UnmatchedPrefixes(capacity=10)
    for number in range(1000):
        add(sketch, number % 2)
        add(sketch, 1000 + number)
    heaviest = sketch.entries(0.0)
    assert {each.hash for each in heaviest[:2]} == {0, 1}
    assert all(500 <= each.tokens / 100 <= 500 + each.error / 100 for each in heaviest[:2])
    assert len(heaviest) == 10


def test_a_newcomer_inherits_the_weight_of_the_lightest_as_its_possible_error_and_nothing_else():
    sketch = UnmatchedPrefixes(capacity=2)
    for prefix in (1, 1, 1, 2, 2, 3):
        add(sketch, prefix, session=prefix, text=prefix)
    assert [(each.hash, each.tokens, each.error, each.requests) for each in sketch.entries(0.0)] == [
        (1, 300, 0, 3),
        (3, 300, 200, 1),
    ]
    assert [counted(each.sessions) for each in sketch.entries(0.0)] == [1, 1]


def test_requests_count_half_after_a_while_and_a_steady_rate_is_told_as_it_is():
    sketch = UnmatchedPrefixes()
    add(sketch, 1, 8)
    add(sketch, 2, 5, now=HALF_LIFE)
    assert [(each.hash, each.tokens) for each in sketch.entries(HALF_LIFE)] == [(2, 500), (1, 400)]
    steady = UnmatchedPrefixes()
    for second in range(0, 4 * 3600, 4):
        add(steady, 1, now=float(second))
    [told] = document(steady, 4 * HOUR)["unmatched"]
    assert told["tokensPerSecond"] == pytest.approx(25, rel=0.01)
    assert told["requestsPerSecond"] == pytest.approx(0.25, rel=0.01)


def test_weeks_pass_without_an_overflow():
    sketch = UnmatchedPrefixes()
    for day in range(60):
        add(sketch, 1, now=day * 24 * HOUR)
    [found] = sketch.entries(60 * 24 * HOUR)
    assert 0 < found.tokens < 100
    assert sketch._decay.unit <= 2.0**64


@pytest.mark.parametrize("number", [0, 1, 10, 100, 600])
def test_sessions_are_counted_within_a_tenth_or_two(number):
    sketch, draw = UnmatchedPrefixes(), random.Random(7)
    for _ in range(number):
        add(sketch, 1, 2, session=draw.getrandbits(64))
    found = [counted(each.sessions) for each in sketch.entries(0.0)]
    assert found == ([] if not number else [pytest.approx(number, rel=0.2)])


def test_a_full_bitmap_is_more_than_a_thousand():
    assert counted(b"\xff" * (BITS // 8)) > 1000


def test_routers_are_added_and_a_session_of_both_counts_once():
    one, other = UnmatchedPrefixes(), UnmatchedPrefixes()
    for session in range(20):
        add(one, 1, session=session * 17)
        add(other, 1, session=session * 17)
    add(other, 2, tokens=1)
    found = merge([document(one, 0.0), document(other, 0.0)])["unmatched"]
    assert [(each["hash"][-1], each["requests"]) for each in found] == [("1", 40), ("2", 1)]
    assert found[0]["tokensPerSecond"] == pytest.approx(4000)
    assert found[0]["sessions"] == pytest.approx(20, abs=2)
    assert merge([]) == {"unmatched": []}


def traffic(kind, draw):
    """A thousand prefixes with their tokens and their shares of the requests."""
    if kind == "agents":  # a few products with long prompts, then a long tail of notebooks
        tokens = [draw.choice((2000, 6000, 12_000, 20_000)) for _ in range(1000)]
    else:  # lengths as in published traces of conversations: log-normal around some hundred tokens
        tokens = [round(draw.lognormvariate(6.5, 1.2)) + 1 for _ in range(1000)]
    shares = [1 / (rank + 1) ** 1.05 for rank in range(1000)]
    draw.shuffle(shares)
    return tokens, list(accumulate(shares))


@pytest.mark.parametrize("kind", ["agents", "conversations"])
@pytest.mark.parametrize("seed", [1, 2, 3])
def test_of_a_thousand_prefixes_the_true_top_ten_are_found(kind, seed):
    draw = random.Random(seed)
    tokens, ranks = traffic(kind, draw)
    drawn = draw.choices(range(1000), cum_weights=ranks, k=12_000)
    truth = [0.0] * 1000
    for each in drawn:
        truth[each] += tokens[each]
    names = [draw.getrandbits(64) for _ in range(1000)]
    sketch = UnmatchedPrefixes()
    for number, each in enumerate(drawn):
        sketch.add("m", names[each], 5000, tokens=tokens[each], session=number, text=each, now=0.0)
    top = sorted(range(1000), key=lambda each: -truth[each])[:10]
    found = sketch.entries(0.0)
    assert len(found) == CAPACITY
    assert [each.hash for each in found[:10]] == [names[each] for each in top]
    for each, true in zip(found[:10], top, strict=True):
        assert each.tokens / sum(truth) == pytest.approx(truth[true] / sum(truth), rel=0.1)


def test_a_full_sketch_has_at_most_64_kib():
    names = [random.Random(each).getrandbits(64) for each in range(4 * CAPACITY)]
    tracemalloc.start()
    try:
        sketch = UnmatchedPrefixes()
        for number, name in enumerate(names):
            near, volatile = (f"chat/{number % 8}", number), [VolatileText("time", at, number) for at in range(4)]
            figures = {"tokens": 2000 + number, "session": number, "text": number, "now": float(number)}
            sketch.add("m", name, 5000, near=near, volatile=volatile, **figures)
        size, _ = tracemalloc.get_traced_memory()
    finally:
        tracemalloc.stop()
    assert len(sketch.entries(5000.0)) == CAPACITY
    assert size <= 64 << 10


# --- samples of text, where they are kept ----------------------------------------------------------------------------


@given(st.text(), st.text(), st.integers(1, 64))
def test_a_sample_has_at_most_its_bytes_and_begins_as_the_text_does(system, tools, limit):
    found = sampled(system, tools, limit)
    assert len(found.system.encode()) + len(found.tools.encode()) <= limit
    assert system.startswith(found.system)
    assert found.whole == (found.system == system)
    assert found.tools in ("", tools)


@given(st.text("ab"), st.text("ab"), st.integers(1, 8))
def test_two_samples_share_what_both_texts_begin_with(one, other, limit):
    found = shared(sampled(one, "", limit), sampled(other, "", limit))
    assert one.startswith(found.system)
    assert other.startswith(found.system)
    if found.whole and one != other:
        longer = len(found.system) + 1
        assert one[:longer] != other[:longer]


def kept(sketch, prefix, text, tools="[]", **fields):
    sample = sampled(text, tools, sketch.sample_bytes)
    sketch.add("m", prefix, len(text), tokens=10, session=0, text=0, now=0.0, sample=sample, **fields)


def test_a_prefix_has_the_text_that_its_requests_share():
    sketch = UnmatchedPrefixes(sample_bytes=100)
    kept(sketch, 1, "Today is the 10th.")
    kept(sketch, 1, "Today is the 11th.")
    (found,) = document(sketch, 0.0)["unmatched"]
    assert found["sample"] == {"system": "Today is the 1", "tools": "[]", "whole": True}
    kept(sketch, 1, "Today is the 11th.", "[1]")
    assert document(sketch, 0.0)["unmatched"][0]["sample"]["tools"] == ""


def test_without_samples_no_text_is_told():
    sketch = UnmatchedPrefixes()
    add(sketch, 1)
    assert "sample" not in document(sketch, 0.0)["unmatched"][0]


def test_the_text_of_a_prefix_goes_with_it():
    sketch = UnmatchedPrefixes(capacity=1, sample_bytes=100)
    kept(sketch, 1, "the first")
    kept(sketch, 2, "the second")
    add(sketch, 3)
    (found,) = document(sketch, 0.0)["unmatched"]
    assert (found["hash"], "sample" in found) == (f"{3:016x}", False)


def test_samples_of_several_routers_are_put_together():
    sketches = [UnmatchedPrefixes(sample_bytes=100) for _ in range(3)]
    kept(sketches[0], 1, "Answer in German.")
    kept(sketches[1], 1, "Answer in French.")
    add(sketches[2], 1)  # a router that keeps none
    (found,) = merge([document(each, 0.0) for each in sketches])["unmatched"]
    assert decode_sample(found["sample"]) == PrefixSample("Answer in ", "[]", whole=True)


# --- how a prefix varies ---------------------------------------------------------------------------------------------


def came(sketch, prefix=1, near=None, volatile=()):
    sketch.add("m", prefix, 1000, tokens=100, session=0, text=0, now=0.0, near=near, volatile=volatile)
    return next(each for each in sketch.entries(0.0) if each.hash == prefix)


def test_text_on_top_varies_once_two_requests_differ_in_it():
    sketch = UnmatchedPrefixes()
    date, time = VolatileText("date", 0, 7), VolatileText("time", 12, 1)
    assert came(sketch, volatile=[date, time]).varies is None
    assert came(sketch, volatile=[date, time]).varies is None
    assert came(sketch, volatile=[date, time._replace(value=2)]).varies == Place("time", 12)
    assert came(sketch, volatile=[date._replace(value=8), time]).varies == Place("date", 0)
    assert came(sketch, volatile=[date, time]).varies == Place("date", 0)
    [told] = document(sketch, 0.0)["unmatched"]
    assert told["varies"] == {"rule": "date", "atByte": 0}


def test_the_prompt_that_the_latest_request_nearly_matched_is_told():
    sketch = UnmatchedPrefixes()
    assert came(sketch, near=("chat/a", 70_000)).near == Place("chat/a", 70_000)
    assert came(sketch, near=("chat/b", 3)).near == Place("chat/b", 3)
    assert came(sketch, 2, near=("chat/c", 4)).near == Place("chat/c", 4)
    assert came(sketch).near is None
    assert came(sketch, 2, near=("chat/c", 5)).near == Place("chat/c", 5)
    assert document(sketch, 0.0)["unmatched"][1]["near"] == {"group": "chat/c", "atByte": 5}


def test_a_prefix_that_takes_a_place_inherits_nothing_of_how_another_varied():
    sketch = UnmatchedPrefixes(capacity=1)
    came(sketch, near=("chat/a", 1), volatile=[VolatileText("date", 0, 7)])
    came(sketch, volatile=[VolatileText("date", 0, 8)])
    found = came(sketch, 2, volatile=[VolatileText("date", 0, 9)])
    assert (found.near, found.varies) == (None, None)


def test_names_of_groups_that_are_gone_make_room():
    sketch = UnmatchedPrefixes(capacity=2)
    for number in range(100):
        came(sketch, number, near=(f"chat/{number}", number))
    assert len(sketch._groups) <= 3


def test_what_one_router_knows_of_a_prefix_is_known_of_it():
    one, other = UnmatchedPrefixes(), UnmatchedPrefixes()
    came(one, near=("chat/a", 1))
    for value in range(3):
        came(other, volatile=[VolatileText("date", 0, value)])
    [told] = merge([document(one, 0.0, {"m": 4000}), document(other, 0.0)])["unmatched"]
    assert told["near"] == {"group": "chat/a", "atByte": 1}
    assert told["varies"] == {"rule": "date", "atByte": 0}
    assert told["prefillTokensPerSecond"] == 4000
