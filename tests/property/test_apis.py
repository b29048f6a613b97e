"""Bodies of every API: whatever a client sends is read in linear time, or refused as the client's fault."""

import contextlib
import time

import orjson
import pytest
from hypothesis import given
from hypothesis import strategies as st

from promptgroup_contract.fingerprint import canonical_tools
from promptgroup_contract.table import Prompt
from promptgroup_router.apis import anthropic, responses
from promptgroup_router.apis.endpoints import BODIES, ENDPOINTS
from promptgroup_router.apis.request import ParsedRequest, preamble
from promptgroup_router.apis.session_key import find_session
from promptgroup_router.apis.usage import MessagesTail, ResponsesTail, Tail
from promptgroup_router.base.errors import ApiError

WORDS = st.sampled_from(
    [
        "system",
        "user",
        "assistant",
        "developer",
        "text",
        "input_text",
        "output_text",
        "image",
        "tool_use",
        "message",
        "tool_result",
        "thinking",
        "function",
        "function_call",
        "function_call_output",
        "reasoning",
        "custom",
        "Hi",
        "ü",
    ]
)
KEYS = st.sampled_from(
    [
        "role",
        "content",
        "type",
        "text",
        "thinking",
        "input",
        "output",
        "source",
        "name",
        "tools",
        "input_schema",
        "function",
        "parameters",
        "description",
        "strict",
        "arguments",
        "summary",
        "tool_calls",
        "data",
        "id",
    ]
)
JSON = st.recursive(
    st.none() | st.booleans() | st.integers(-(2**63), 2**63) | st.floats(allow_nan=False) | WORDS | st.text(max_size=9),
    lambda inner: st.lists(inner, max_size=4) | st.dictionaries(KEYS, inner, max_size=5),
    max_leaves=25,
)
FIELDS = st.sampled_from(
    [
        "messages",
        "system",
        "tools",
        "input",
        "instructions",
        "prompt",
        "previous_response_id",
        "stream",
        "metadata",
        "conversation",
        "prompt_cache_key",
        "session_id",
        "request_id",
        "store",
    ]
)
BODY = st.dictionaries(FIELDS, JSON, max_size=7)
DECLARED = canonical_tools(
    [{"type": "function", "function": {"name": "f", "parameters": {"type": "object", "properties": {}}}}]
)
PROMPTS = [
    preamble(Prompt("Sys", ""), "m"),
    preamble(Prompt("", DECLARED), "m"),
    preamble(Prompt("Sys", DECLARED), "m"),
]
JSON_ENDPOINTS = [each for path, each in ENDPOINTS.items() if b"transcriptions" not in path and b"transl" not in path]


def parsed(path: bytes, body: bytes) -> ParsedRequest | None:
    try:
        return ENDPOINTS[path].parse(body)
    except ApiError as error:
        refused = ENDPOINTS[path].form.refuse(error, b"")
    assert refused.status == 400
    return None


@pytest.mark.heavy
@given(path=st.sampled_from([each.path for each in JSON_ENDPOINTS]), body=BODY, prompt=st.sampled_from(PROMPTS))
def test_any_object_is_read_placed_and_rewritten_or_refused(path, body, prompt):
    ask = parsed(path, orjson.dumps({"model": "llama"} | body))
    if ask is None:
        return
    assert ask.text >= ask.history >= 0
    assert ask.turn >= 1
    assert 0 <= find_session(ask, {}, "group").key < 2**64
    rewriting = BODIES[ask.kind]
    if ask.tools_in_order:
        assert rewriting.with_ordered_tools(ask) is ask.raw
    else:
        ordered = parsed(path, rewriting.with_ordered_tools(ask))
        assert (ordered.tools, ordered.system, ordered.tools_in_order) == (ask.tools, ask.system, True)
    with contextlib.suppress(ApiError):
        doc = orjson.loads(rewriting.with_preamble(ask, prompt, "real"))
        assert doc["model"] == "real"
        # all that the prompt and the model do not touch is forwarded
        for field in set(body) - {"messages", "system", "tools", "instructions", "prompt"}:
            assert doc[field] == ask.doc[field]


@given(path=st.sampled_from(sorted(ENDPOINTS)), body=st.binary(max_size=200))
def test_any_bytes_are_refused_as_the_clients_fault(path, body):
    parsed(path, body)


@given(pieces=st.lists(st.binary(max_size=40) | st.sampled_from([b'"usage":', b'"input_tokens":7', b'{"', b"}"])))
def test_any_answer_is_read_in_any_pieces(pieces):
    for kind in (Tail, MessagesTail, ResponsesTail):
        whole, apart = kind(), kind()
        whole.add(b"".join(pieces))
        for piece in pieces:
            apart.add(piece)
        assert whole.usage() == apart.usage()


MANY = 4_000


def hostile(count: int) -> dict[str, tuple[bytes, bytes]]:
    """Name → path and body, of a size that grows with the count."""
    block = {"type": "tool_result", "content": [{"type": "text", "text": "x"}]}
    tools = [{"name": str(n), "input_schema": {"b": 1, "a": 2}} for n in range(count // 20)]
    flat = [{"type": "function", "name": str(n), "parameters": {"b": 1, "a": 2}} for n in range(count // 20)]
    return {
        "blocks of a message": (
            b"/v1/messages",
            orjson.dumps({"model": "m", "messages": [{"role": "user", "content": [block] * count}]}),
        ),
        "blocks of a system text": (
            b"/v1/messages",
            orjson.dumps(
                {"model": "m", "system": [{"type": "text", "text": "x"}] * count, "messages": [{"role": "u"}]}
            ),
        ),
        "messages": (b"/v1/messages", orjson.dumps({"model": "m", "messages": [{"role": "user"}] * count})),
        "tools of messages": (
            b"/v1/messages",
            orjson.dumps({"model": "m", "messages": [{"role": "user"}], "tools": tools, "x": count}),
        ),
        "items": (b"/v1/responses", orjson.dumps({"model": "m", "input": [{"type": "reasoning"}] * count})),
        "tools of responses": (b"/v1/responses", orjson.dumps({"model": "m", "input": "", "tools": flat, "x": count})),
        "delimiters of a form": (b"/v1/audio/transcriptions", b"--X\r\n" + b"\r\n--X\r\n\r\n" * count),
        "heads of a form": (b"/v1/audio/transcriptions", b"--X\r\n" + b"; name=model " * count),
    }


def cpu_seconds(path: bytes, body: bytes) -> float:
    """The least of three runs, whole enough to be measured."""
    best = float("inf")
    for _ in range(3):
        before, rounds = time.process_time(), 0
        while (spent := time.process_time() - before) < 0.02 or not rounds:
            for api in (anthropic, responses):
                api._tool_forms._by_text.clear()  # a list that is remembered costs nothing the second time
            parsed(path, body)
            rounds += 1
        best = min(best, spent / rounds)
    return best


@pytest.mark.heavy
@pytest.mark.parametrize("name", sorted(hostile(1)))
def test_reading_takes_time_in_proportion_to_the_bytes(name):
    small, large = cpu_seconds(*hostile(MANY)[name]), cpu_seconds(*hostile(8 * MANY)[name])
    assert large < 4 * 8 * small + 1e-4
