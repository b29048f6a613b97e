import orjson
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from promptgroup_contract.table import PromptRef
from promptgroup_router.apis.endpoints import ENDPOINTS
from promptgroup_router.apis.responses import goes_on
from promptgroup_router.apis.session_key import find_session
from promptgroup_router.apis.structure import LARGE_BYTES
from promptgroup_router.apis.tokens import Tokens
from promptgroup_router.base.errors import ApiError
from promptgroup_router.callers.longest_answer import SAYING, longest_answer
from promptgroup_router.features.cache_diagnosis import HEADER, question, without_question
from promptgroup_router.features.near_miss import UnmatchedPrompt
from promptgroup_router.policy.session_locations import SessionLocations
from promptgroup_router.reading.digest import digest, from_digest
from promptgroup_router.rings.building import build_index
from promptgroup_router.routing.points import feature_of
from promptgroup_router.routing.route import Route, written
from support.changed import changed
from support.routes import route
from support.tables import SYSTEM, group, revision, table

EXAMPLES = (("user", "What is 1 + 1?"), ("assistant", "2"))
TOOLS = '[{"function":{"name":"f"},"type":"function"}]'
TABLE = table(
    group("plain", revision()),
    group("unread", revision(SYSTEM + " Be brief.", known=False)),
    group("examples", revision(messages=EXAMPLES)),
    group("tools", revision(tools=TOOLS)),
    group("secret", revision("A secret. " + SYSTEM, prompt_from=PromptRef("Secret", "secret-1"))),
)
VIEW = build_index(TABLE)

LONG = "<long>"
"""Stands for a text of more than LARGE_BYTES, which Hypothesis would print."""
TEXTS = st.sampled_from(
    ["", "Hi", "x" * 300, SYSTEM, SYSTEM + " Be brief. Now.", SYSTEM + LONG, LONG, *dict(EXAMPLES).values()]
)
ROLES = st.sampled_from(["system", "user", "assistant", "tool"])
PARTS = st.fixed_dictionaries({"type": st.sampled_from(["text", "image_url", "input_text"]), "text": TEXTS})
CONTENT = TEXTS | st.lists(PARTS, max_size=2) | st.none()
MESSAGE = st.fixed_dictionaries({"role": ROLES, "content": CONTENT}, optional={"tool_calls": st.just([{"id": "1"}])})
EXAMPLE_MESSAGES = [{"role": role, "content": text} for role, text in EXAMPLES]
MESSAGES = st.lists(MESSAGE, min_size=1, max_size=5).flatmap(
    lambda made: st.sampled_from([made, [{"role": "system", "content": SYSTEM}, *EXAMPLE_MESSAGES, *made]])
)
PROMPTS = TEXTS | st.lists(TEXTS, max_size=2) | st.just([7] * 2000) | st.just([[7] * 2000, [8]]) | st.just([[], [1]])
EXTRA = {
    "session_id": TEXTS,
    "conversation": TEXTS | st.fixed_dictionaries({"id": TEXTS}),
    "prompt_cache_key": TEXTS,
    "metadata": st.fixed_dictionaries({"user_id": TEXTS}),
    "echo": st.booleans(),
    "return_prompt_text": st.booleans(),
    "cache_salt": st.just("mine"),
    "kv_transfer_params": st.none(),
    "request_id": st.just("mine"),
    "tools": st.just(orjson.loads(TOOLS)),
    "stream": st.booleans(),
    "other": TEXTS,
}
SPECIFIC = {
    "/v1/chat/completions": {"messages": MESSAGES},
    "/v1/messages": {"messages": MESSAGES},
    "/v1/completions": {"prompt": PROMPTS},
    "/v1/responses": {"input": TEXTS | MESSAGES, "instructions": TEXTS},
    "/v1/embeddings": {},
    "/tokenize": {"messages": MESSAGES},
}


@st.composite
def requests(draw):
    path = draw(st.sampled_from(sorted(SPECIFIC)))
    made = draw(st.fixed_dictionaries(SPECIFIC[path], optional=EXTRA))
    return path.encode(), orjson.dumps(
        {"model": draw(st.sampled_from(["llama", "plain", "examples", "secret"]))} | made
    )


def outcome(ask, endpoint, whole):
    """A route with the body for the engine, or a refusal; `whole` is the request that a digest is of."""
    try:
        found = route(VIEW, ask, {}, locations=SessionLocations(), tokens=Tokens(), now=0.0, cached=endpoint.cached)
        body = written(whole, found.rewrite)
        return changed(found, rewrite=changed(found.rewrite, body=body), features=()), features(found)
    except ApiError as error:
        return error.status, str(error), error.param, error.code


def features(found):
    """The features of a route: their kinds, and what is known of a prompt that no group declares."""
    unmatched = feature_of(found.features, UnmatchedPrompt)
    known = (unmatched.leading, unmatched.near_miss) if unmatched is not None else None
    return [type(feature) for feature in found.features], known


def without_hashes(result):
    """A result without what is a hash of texts: long ones are hashed on the way, which makes other hashes."""
    found, parts = result[0], result[1]
    if not isinstance(found, Route):
        return result
    demand = changed(found.demand, session=0, prefix=0, origin=0)
    session = changed(found.session, key=0, first=0)
    kinds, known = parts
    return changed(found, demand=demand, session=session), kinds, known and (known[0].length, known[1])


@pytest.mark.interpreted
@settings(deadline=None)
@given(requests())
def test_a_digest_has_the_route_of_its_request(request):
    path, body = request[0], request[1].replace(LONG.encode(), "é".encode() * LARGE_BYTES)
    endpoint = ENDPOINTS[path]
    try:
        whole = endpoint.parse(body)
    except ApiError:
        return
    told = orjson.dumps(digest(whole, VIEW.most_messages))
    routes = [outcome(each, endpoint, whole) for each in (from_digest(orjson.loads(told)), whole)]
    if LONG.encode() in request[1]:
        routes = [without_hashes(each) for each in routes]
    assert routes[0] == routes[1]


@pytest.mark.parametrize(
    "body",
    [
        {"messages": [{"role": "user", "content": "word " * 800_000}]},
        {"messages": [{"role": "user", "content": "word " * 100}] * 8000},
        {"messages": [{"role": "system", "content": "word " * 40_000}] * 20},
        {"messages": [{"role": "system", "content": ""}] * 60_000},
        {"messages": [{"role": "user", "content": "hi"}], "session_id": "x" * 4_000_000, "y": [{}] * 60_000},
    ],
)
def test_a_digest_is_small_whatever_the_request(body):
    whole = ENDPOINTS[b"/v1/chat/completions"].parse(orjson.dumps(body | {"model": "llama"}))
    assert len(orjson.dumps(digest(whole, 4))) < 250_000


def test_a_very_long_system_text_is_told_by_its_beginning_and_its_hash():
    def told(text):
        body = {"model": "llama", "messages": [{"role": "system", "content": text}, {"role": "user", "content": "Hi"}]}
        ask = ENDPOINTS[b"/v1/chat/completions"].parse(orjson.dumps(body))
        return from_digest(orjson.loads(orjson.dumps(digest(ask, 0)))), ask

    (one, whole), (other, _) = told(SYSTEM + "a" * 2_000_000), told(SYSTEM + "a" * 1_999_999 + "b")
    assert len(one.system) < 1_100_000
    assert one.system != other.system
    assert (one.text, find_session(one, {}, "g").key) == (whole.text, find_session(whole, {}, "g").key)
    assert outcome(one, ENDPOINTS[b"/v1/chat/completions"], whole)[0].group == "chat/plain"


MESSAGES_PATH, RESPONSES_PATH, CHAT_PATH = b"/v1/messages", b"/v1/responses", b"/v1/chat/completions"
SAID = [{"role": "user", "content": "word " * 100_000}, {"role": "assistant", "content": "yes"}] * 3


@pytest.mark.interpreted
@pytest.mark.parametrize(("path", "field"), [(CHAT_PATH, "messages"), (RESPONSES_PATH, "input")])
def test_a_digest_has_all_declared_messages_behind_the_instructions(path, field):
    said = [{"role": "system", "content": SYSTEM}, *EXAMPLE_MESSAGES, *SAID]
    whole = ENDPOINTS[path].parse(orjson.dumps({"model": "llama", field: said}))
    told = from_digest(orjson.loads(orjson.dumps(digest(whole, VIEW.most_messages))))
    groups = [outcome(each, ENDPOINTS[path], whole)[0].group for each in (told, whole)]
    assert groups == ["chat/examples"] * 2


@pytest.mark.parametrize(
    ("path", "fields", "by_header"),
    [
        (MESSAGES_PATH, {"messages": SAID, "diagnostics": {"previous_message_id": "msg_1"}}, False),
        (MESSAGES_PATH, {"messages": SAID, "diagnostics": {"previous_message_id": None}}, False),
        (MESSAGES_PATH, {"messages": SAID, "diagnostics": None}, True),
        (RESPONSES_PATH, {"input": SAID, "prompt_cache_options": {"comparison_response_id": "resp_1"}}, False),
        (CHAT_PATH, {"messages": [{"role": "system", "content": SYSTEM}, *SAID]}, True),
        (CHAT_PATH, {"messages": SAID}, False),
    ],
)
def test_a_digest_asks_what_its_request_asks(path, fields, by_header):
    whole = ENDPOINTS[path].parse(orjson.dumps({"model": "llama"} | fields))
    told = from_digest(orjson.loads(orjson.dumps(digest(whole, 0, asks_by_header=by_header))))
    headers = {HEADER: b"chatcmpl-1"} if by_header else {}
    assert question(told, headers) == question(whole, headers)
    assert (question(told, headers) is None) == (path == CHAT_PATH and not by_header)
    assert without_question(told).raw == b""


@pytest.mark.parametrize(
    "asked", ["x" * 10_000, {"previous_message_id": "x" * 10_000}, [1], {"previous_message_id": 7}]
)
def test_a_digest_of_a_question_of_another_form_is_small_and_refused(asked):
    whole = ENDPOINTS[MESSAGES_PATH].parse(orjson.dumps({"model": "llama", "messages": SAID, "diagnostics": asked}))
    told = orjson.dumps(digest(whole, 0))
    assert len(told) < 20_000
    with pytest.raises(ApiError, match="diagnostics"):
        question(from_digest(orjson.loads(told)), {})


@pytest.mark.parametrize("value", [8, "8", " 8.0 ", 8.0, True, 2**63, "x", None, -1, "true"], ids=str)
def test_a_digest_reserves_what_its_request_does(value):
    for path, fields in SPECIFIC_BODIES.items():
        names = dict.fromkeys((*SAYING, "background"), value)
        whole = ENDPOINTS[path].parse(orjson.dumps({"model": "m"} | fields | names))
        told = from_digest(orjson.loads(orjson.dumps(digest(whole, 0))))
        assert longest_answer(told.kind, told.doc) == longest_answer(whole.kind, whole.doc)
        assert (told.prompts, told.embedded) == (whole.prompts, whole.embedded)
        assert goes_on(told) is goes_on(whole)


SPECIFIC_BODIES = {
    b"/v1/chat/completions": {"messages": [{"role": "user", "content": "Hi"}]},
    b"/v1/completions": {"prompt": ["a", "b"], "prompt_embeds": ["AA"]},
    b"/v1/messages": {"messages": [{"role": "user", "content": "Hi"}]},
    b"/v1/responses": {"input": "Hi"},
}
