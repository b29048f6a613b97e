"""What requests demand, over whole conversations and for each way to a replica."""

import orjson
from hypothesis import given
from hypothesis import strategies as st

from promptgroup_router.apis.request import ApiKind, parse
from promptgroup_router.apis.tokens import LEAST, MOST, Tokens
from promptgroup_router.policy.session_locations import SessionLocations
from promptgroup_router.rings.building import build_index
from support.routes import route
from support.tables import SYSTEM, group, revision, table

TOOLS = '[{"name":"find","parameters":{}}]'
words = st.text(max_size=300)
conversations = st.lists(st.tuples(words.filter(bool), words.filter(bool)), min_size=1, max_size=6)
systems = st.sampled_from([SYSTEM, SYSTEM + " Be brief.", "Somebody else's prompt", ""])
counts = st.sampled_from([0, 1, 40, 5000])
answers = st.lists(st.tuples(st.integers(0, 10**7), st.integers(-100, 10**7)), max_size=20)


def demands(conversation, system, *, tools, counted, by_name, tokens):
    """The demand of each turn."""
    view = build_index(table(group("support", revision(tools=TOOLS if tools else "", tokens=counted))))
    messages = [{"role": "system", "content": system}] if system and not by_name else []
    for question, answer in conversation:
        messages.append({"role": "user", "content": question})
        body = {"model": "support" if by_name else "llama", "messages": messages}
        if tools and not by_name:
            body["tools"] = orjson.Fragment(TOOLS)
        ask = parse(ApiKind.CHAT, orjson.dumps(body))
        yield route(view, ask, {}, locations=SessionLocations(), tokens=tokens, now=0.0).demand
        messages.append({"role": "assistant", "content": answer})


ways = st.fixed_dictionaries({"tools": st.booleans(), "counted": counts, "by_name": st.booleans()})


@given(conversations, systems, ways, answers)
def test_lengths_fit_together_and_grow_from_turn_to_turn(conversation, system, way, observed):
    tokens = Tokens()
    for text, told in observed:
        tokens.learn("llama", text, told)
    before = None
    for demand in demands(conversation, system, **way, tokens=tokens):
        assert 0 <= demand.tier1 <= demand.prompt
        assert 0 <= demand.history <= demand.prompt
        if before is None:
            assert demand.history == 0
        else:
            # what the turn before sent, and its answer
            assert 0 < demand.history >= before.prompt
            assert demand.turn == before.turn + 2
            assert demand.prefix == before.prefix
        before = demand


@given(answers)
def test_an_estimate_stays_within_what_is_possible(observed):
    tokens = Tokens()
    for text, told in observed:
        tokens.learn("llama", text, told)
        assert LEAST <= tokens.per_byte("llama") <= MOST
