import json

import pytest
from hypothesis import given
from hypothesis import strategies as st

from promptgroup_router.apis import request
from promptgroup_router.apis.request import ApiKind
from promptgroup_router.features.near_miss import ENDING, REMEMBERED, NearMiss, NearMisses, find_near_miss
from promptgroup_router.rings.building import build_index
from promptgroup_router.rings.claims import common_length
from support.tables import group, revision, table

DECLARED = "Du bist der Helfer für Kundinnen. " + "Regel: " * 60 + "Antworte höflich."
OTHER = "You write poems. " + "Rhyme: " * 60 + "Be brief."


def model(*texts, tools=()):
    groups = [group(name, revision(text)) for name, text in zip(("support", "poems"), texts, strict=False)]
    return build_index(table(*groups)).models["llama"].first


def ask(system, tools=None):
    body = {"model": "llama", "messages": [{"role": "system", "content": system}, {"role": "user", "content": "hi"}]}
    if tools:
        body["tools"] = tools
    return request.parse(ApiKind.CHAT, json.dumps(body).encode())


HALF = DECLARED[: len(DECLARED) // 2 + 5]
NEAR = {
    "a date on top": ("Today is 2026-11-03.\n" + DECLARED, 0),
    "a date behind the first sentence": (DECLARED.replace("Kundinnen.", "Kundinnen. Es ist 12:04."), 35),
    "the end is another": (HALF + "!!!", len(HALF.encode())),
    "cut short": (HALF, len(HALF.encode())),
    "edited in the last word": (DECLARED[:-2] + "st.", len(DECLARED.encode()) - 2),
    "another prompt": (OTHER, None),
    "another prompt that begins alike": (DECLARED[:60] + OTHER, None),
    "nothing": ("", None),
}


@pytest.mark.parametrize("case", NEAR)
def test_where_a_text_leaves_the_declared_one(case):
    text, at = NEAR[case]
    expected = NearMiss("chat/support", at) if at is not None else None
    assert find_near_miss(model(DECLARED), ask(text)) == expected


def test_the_closest_of_several_prompts_is_the_one():
    view = model(DECLARED, DECLARED[:-40] + "Antworte knapp. " * 10)
    assert find_near_miss(view, ask(DECLARED[:-40] + "Antworte knapp. Und gut.")).group == "chat/poems"


def test_other_tools_are_another_prompt():
    assert find_near_miss(model(DECLARED), ask("Today. " + DECLARED, tools=[{"type": "function"}])) is None


def test_of_a_short_prompt_only_the_beginning_is_compared():
    assert len("be kind") < ENDING
    assert find_near_miss(model("be kind"), ask("I say: be kind")) is None


@given(st.text(max_size=60), st.text(max_size=60), st.text(max_size=60))
def test_the_common_beginning_is_as_long_as_can_be(start, a, b):
    found = common_length(start + a, start + b)
    one, other = start + a, start + b
    assert one[:found] == other[:found]
    assert found == min(len(one), len(other)) or one[found] != other[found]


def test_the_median_of_the_latest_stands_for_all():
    found = NearMisses()
    assert found.medians() == {}
    for at in [9] * REMEMBERED + [40] * (REMEMBERED // 2 + 1):
        found.add(NearMiss("chat/support", at))
    assert found.medians() == {("chat/support",): 40}


def test_of_groups_that_are_not_kept_nothing_is_told():
    found = NearMisses()
    for label in ("chat/support", "chat/poems"):
        found.add(NearMiss(label, 9))
    found.keep({("chat/poems",), ("chat/new",)})
    assert found.medians() == {("chat/poems",): 9}


@pytest.mark.parametrize("length", [300, 500])
@pytest.mark.parametrize("turned", [False, True])
def test_of_several_with_the_same_end_the_one_that_goes_along_furthest_is_the_nearest(turned, length):
    end = "Answer shortly. " * 12
    far, near = "A" * length + end, "Today is the day. " + "B" * 400 + end
    texts = (near, far) if turned else (far, near)
    found = find_near_miss(model(*texts), ask("Today is the day. Note: " + end))
    assert found == NearMiss(f"chat/{'support' if turned else 'poems'}", len("Today is the day. "))
