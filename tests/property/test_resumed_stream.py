"""Streams that are cut at any byte and go on on another engine: their text is that of the unbroken stream."""

import orjson
from hypothesis import given, settings
from hypothesis import strategies as st

from promptgroup_local.engine.tokenizer import NewText, Special, tokenize
from promptgroup_router.apis.usage import Tail
from promptgroup_router.base.errors import Failure
from promptgroup_router.decision.arrival import arrive
from promptgroup_router.decision.composition import router_state
from promptgroup_router.features.resumed_stream.feature import ResumedStream
from promptgroup_router.http11.whole_events import WholeEvents
from promptgroup_router.routing.points import Answering, RequestEnd, feature_of
from support.tables import group, table
from support.tokenstream import DONE, data_of, event, text_of
from support.wire import chat

PROMPT = (Special.BEGIN, *tokenize("Häuser und Gärten"), Special.ASSISTANT)
LIMIT = 64
TEXTS = st.text(st.sampled_from('aé€😀日 \n"\\'), min_size=1, max_size=60)
GROUPS = st.lists(st.integers(1, 4), min_size=1, max_size=12)
CHAT = b"/v1/chat/completions"


def pieces(text, sizes):
    """The tokens of a text: short ones make more of them end within characters."""
    data, tokens, at, number = text.encode(), [], 0, 0
    while at < len(data):
        size = sizes[number % len(sizes)]
        part = data[at : at + size]
        tokens.append(
            int.from_bytes(part) if size == 4 and len(part) == 4 else (0xF8 << 24) + int.from_bytes(b"\1" + part)
        )
        at, number = at + size, number + 1
    return tokens


def wire(document, prompt, tokens, together, *, is_chat):
    """The events in which an engine tells tokens behind a prompt, as vLLM does."""
    text, told, at, number = NewText(prompt), [], 0, 0
    if is_chat:
        opening = {"choices": [{"index": 0, "delta": {"role": "assistant", "content": ""}, "finish_reason": None}]}
        told.append(event(document | opening | {"prompt_token_ids": prompt}))
    while at < len(tokens):
        some = tokens[at : at + together[number % len(together)]]
        at, number = at + len(some), number + 1
        new = text.add(some)
        content = {"delta": {"content": new}} if is_chat else {"text": new}
        ids = {"token_ids": some} | ({"prompt_token_ids": prompt} if not is_chat and at == len(some) else {})
        reason = "stop" if at == len(tokens) else None
        told.append(event(document | {"choices": [{"index": 0, **content, "finish_reason": reason, **ids}]}))
    usage = {"prompt_tokens": len(prompt), "completion_tokens": len(tokens), "total_tokens": len(prompt) + len(tokens)}
    return b"".join([*told, event(document | {"choices": [], "usage": usage}), DONE])


def feature():
    state = router_state()
    state.install(table(group(max_resumes=1)), "file", 0.0)
    body = orjson.dumps(chat(stream=True, temperature=0, max_tokens=LIMIT))
    route = arrive(state, method=b"POST", path=CHAT, headers={}, body=body, now=0.0)
    found = feature_of(route.features, ResumedStream)
    assert found is not None
    found.engine_body(route.rewrite.body, route.candidates.members[0], bytes)
    found.tail(Tail(), streamed=True)
    answer = Answering(None, 200, streamed=True, compressed=False, now=0.0)
    found.answering(answer)
    return state, found, answer.rewriter


def passed(rewriter, data, sizes):
    """What a client gets of bytes that come in parts of these sizes."""
    whole, told, at, number = WholeEvents(), b"", 0, 0
    while at < len(data):
        part = data[at : at + sizes[number % len(sizes)]]
        at, number = at + len(part), number + 1
        told += rewriter.feed(whole.feed(part))
    return told


@settings(max_examples=300, deadline=None)
@given(
    text=TEXTS,
    sizes=st.lists(st.integers(1, 4), min_size=1, max_size=6),
    together=GROUPS,
    then=GROUPS,
    parts=st.lists(st.integers(1, 400), min_size=1, max_size=5),
    cut=st.integers(0, 10**6),
)
def test_the_text_is_that_of_the_unbroken_stream_wherever_it_is_cut(**case):
    check(**case)


def test_each_byte_of_a_stream_may_be_the_last():
    for cut in range(len(wire({"id": "a"}, PROMPT, pieces("a€😀é日!", [1, 3, 2]), [1], is_chat=True))):
        check(text="a€😀é日!", sizes=[1, 3, 2], together=[1], then=[1], parts=[100], cut=cut)


def check(*, text, sizes, together, then, parts, cut):
    tokens = pieces(text, sizes)
    first = wire({"id": "a", "created": 1, "model": "m"}, PROMPT, tokens, together, is_chat=True)
    cut %= len(first) + 1
    state, found, rewriter = feature()
    told = passed(rewriter, first[:cut], parts)
    assert b'_ids":[' not in told
    rest = found.rest(Failure.RESET)
    if rest is None:
        # an event of several tokens may end within a character, and nothing goes on behind the last
        ended = any(choice["finish_reason"] for part in data_of(told) for choice in part["choices"])
        assert ended or max(together) > 1 or not data_of(told)
    else:
        path, body = rest.request()
        asked = orjson.loads(body)
        kept = asked["prompt"][len(PROMPT) :]
        assert (path, asked["prompt"][: len(PROMPT)], kept) == (b"/v1/completions", list(PROMPT), tokens[: len(kept)])
        assert asked["max_tokens"] == LIMIT - len(kept)
        told += rest.begins()
        more = wire({"id": "b", "created": 2, "model": "m"}, asked["prompt"], tokens[len(kept) :], then, is_chat=False)
        told += passed(rewriter, more, parts)
        documents = data_of(told)
        assert text_of(documents) == text_of(data_of(first))
        assert {document["id"] for document in documents} == {"a"}
        assert documents[-1]["usage"] == data_of(first)[-1]["usage"]
        assert told.endswith(DONE)
        assert b'_ids":[' not in told
    assert state.token_bytes == found._text.tokens.size
    found.ended(RequestEnd(None, 0.0, worked=True, metered=True))
    assert state.token_bytes == 0
