from dataclasses import replace

import orjson
import pytest
from hypothesis import given
from hypothesis import strategies as st

from promptgroup_contract.caller_rules import CallerRules, EngineField
from promptgroup_router.apis.by_model import parse_form
from promptgroup_router.apis.endpoints import ENDPOINTS
from promptgroup_router.apis.request import ApiKind, parse
from promptgroup_router.apis.tokens import Tokens
from promptgroup_router.base.errors import ApiError
from promptgroup_router.features.secret_prompt import repeating_field
from promptgroup_router.features.stored_responses.response_id import ChosenResponseId
from promptgroup_router.policy.session_locations import SessionLocations
from promptgroup_router.rings.building import build_index
from promptgroup_router.routing.engine_fields import (
    names_in,
    with_text_field,
    without_engine_fields,
    without_media_ids,
)
from promptgroup_router.routing.points import feature_of
from support.enginefields import JUDGED, PASSES, REPEATING
from support.routes import route
from support.tables import SYSTEM, group, table

CHAT = b"/v1/chat/completions"
HELLO = [{"role": "user", "content": "Hi"}]
DECLARED = [{"role": "system", "content": SYSTEM}, *HELLO]
BODIES = {
    CHAT: {"messages": DECLARED},
    b"/v1/completions": {"prompt": SYSTEM + "Hi"},
    b"/v1/messages": {"messages": HELLO, "system": SYSTEM, "max_tokens": 5},
    b"/v1/messages/count_tokens": {"messages": HELLO, "system": SYSTEM},
    b"/v1/responses": {"input": "Hi", "instructions": SYSTEM},
    b"/tokenize": {"messages": DECLARED},
    b"/v1/embeddings": {"input": "Hi"},
}


def sent(body, *, path=CHAT, allowed=()):
    """The body that an engine gets."""
    endpoint = ENDPOINTS[path]
    view = build_index(table(group(callers=CallerRules(allowed=frozenset(allowed)))))
    ask = endpoint.parse(orjson.dumps(body))
    places, tokens = SessionLocations(), Tokens()
    return orjson.loads(
        route(view, ask, {}, locations=places, tokens=tokens, now=0.0, cached=endpoint.cached).rewrite.body
    )


@pytest.mark.parametrize("field", EngineField)
@pytest.mark.parametrize("path", BODIES)
def test_fields_of_engines_are_taken_out_on_every_api(path, field):
    body = {"model": "llama", "temperature": 0.5, field.value: {"x": 1}, **BODIES[path]}
    got = sent(body, path=path)
    assert field.value not in got
    assert got["temperature"] == 0.5


@pytest.mark.parametrize("path", BODIES)
def test_fields_that_passing_does_no_harm_reach_engines(path):
    cut = {"truncate_prompt_tokens", "stream", "stream_options"}
    body = dict.fromkeys(PASSES.keys() - cut, None) | {"model": "llama"} | BODIES[path]
    assert sent(body, path=path).keys() == body.keys()


def test_each_field_is_judged_once_and_those_that_repeat_prompts_are_refused_of_secret_ones():
    assert len(JUDGED) == len(PASSES) + len(EngineField)
    assert not [name for name, why in PASSES.items() if why is REPEATING and repeating_field({name: 1}) is None]


@pytest.mark.parametrize("path", [path for path in BODIES if path != b"/v1/embeddings"])
def test_a_prompt_that_is_put_in_front_is_not_cut(path):
    own = {b"/v1/completions": {"prompt": "Hi"}, b"/v1/responses": {"input": "Hi"}}
    texts = own.get(path, {"messages": HELLO, "max_tokens": 5})
    assert "truncate_prompt_tokens" not in sent(texts | {"model": "support", "truncate_prompt_tokens": 1}, path=path)


def test_what_has_no_prompt_in_front_is_cut_as_its_client_says():
    for model, path in (("support", b"/v1/embeddings"), ("llama", b"/v1/embeddings"), ("llama", CHAT)):
        assert sent(BODIES[path] | {"model": model, "truncate_prompt_tokens": 1}, path=path)["truncate_prompt_tokens"]


@pytest.mark.parametrize("allowed", [(), (EngineField.REQUEST_ID,)])
def test_a_client_chooses_the_id_of_a_response_only_where_its_group_allows_it(allowed):
    view = build_index(table(group(callers=CallerRules(allowed=frozenset(allowed)))))
    endpoint = ENDPOINTS[b"/v1/responses"]
    ask = endpoint.parse(orjson.dumps({"model": "support", "input": "Hi", "request_id": "resp_1"}))
    found = route(view, ask, {}, locations=SessionLocations(), tokens=Tokens(), now=0.0)
    assert (feature_of(found.features, ChosenResponseId) is not None) is not bool(allowed)
    assert ("request_id" in orjson.loads(found.rewrite.body)) is bool(allowed)


@pytest.mark.parametrize("model", ["llama", "support"])
def test_a_group_may_allow_some_of_them(model):
    messages = DECLARED if model == "llama" else HELLO
    body = {"model": model, "messages": messages, "cache_salt": "mine", "nvext": {}, "priority": -9}
    got = sent(body, allowed=[EngineField.CACHE_SALT])
    assert got["cache_salt"] == "mine"
    assert not {"nvext", "priority"} & got.keys()


def test_what_no_group_declares_is_cleaned_too():
    body = {"model": "llama", "messages": HELLO, "kv_transfer_params": {"a": 1}}
    for allowed in ((), EngineField):
        assert "kv_transfer_params" not in sent(body, allowed=allowed)


def test_a_field_that_is_written_with_escapes_or_twice_is_found():
    body = b'{"model":"llama","messages":[{"role":"user","content":"x"}],"nv\\u0065xt":1,"rid":"a","rid":"b"}'
    assert without_engine_fields(parse(ApiKind.CHAT, body)).raw == (
        b'{"model":"llama","messages":[{"role":"user","content":"x"}]}'
    )


def test_a_body_without_them_stays_as_it_was_received():
    body = b'{ "messages" : [{"role":"user","content":"x"}], "model":"llama"}'
    ask = parse(ApiKind.CHAT, body)
    assert without_engine_fields(ask) is ask
    allowed = parse(ApiKind.CHAT, body[:-1] + b',"rid":"1"}')
    assert without_engine_fields(allowed, {"rid"}) is allowed


def test_a_field_is_put_in_front():
    assert with_text_field(b' { "a":1}', "cache_salt", "x") == b' {"cache_salt":"x", "a":1}'


def test_ids_of_images_are_taken_out_and_nothing_else_is():
    image = {"type": "image_url", "image_url": {"url": "http://a"}, "uuid": "theirs"}
    body = {"model": "llama", "messages": [{"role": "user", "content": ["odd", image]}]}
    got = orjson.loads(without_media_ids(parse(ApiKind.CHAT, orjson.dumps(body))).raw)
    del image["uuid"]
    assert got == body
    text = parse(ApiKind.CHAT, orjson.dumps({"model": "llama", "messages": HELLO}))
    assert without_media_ids(text) is text


def parts_of(name: str, value: bytes) -> bytes:
    head = b"Content-Disposition: form-data; name="
    return b"--XX\r\n%bmodel\r\n\r\nllama\r\n--XX\r\n%b%b\r\n\r\n%b\r\n--XX--\r\n" % (head, head, name.encode(), value)


NAMES = st.sampled_from(["vllm_xargs", "sampling_params", "extra_args", "kv_transfer_params", "priority", "other"])
NESTED = st.recursive(
    st.none() | st.integers(0, 3), lambda inner: st.lists(inner, max_size=3) | st.dictionaries(NAMES, inner, max_size=4)
)


@pytest.mark.interpreted
@given(st.dictionaries(NAMES, NESTED, max_size=4), st.sets(st.sampled_from(EngineField)))
def test_the_names_in_a_body_say_whether_something_is_taken_out_of_it(fields, allowed):
    ask = parse(ApiKind.CHAT, orjson.dumps(fields | {"model": "llama", "messages": HELLO}))
    short = replace(ask, doc=names_in(ask.doc))
    assert (without_engine_fields(short, allowed) is short) == (without_engine_fields(ask, allowed) is ask)
    assert without_engine_fields(done := without_engine_fields(ask, allowed), allowed) is done


def test_names_do_not_grow_with_a_batch():
    batch = {"sampling_params": [{"extra_args": {name.value: 1}} for name in EngineField] * 100}
    assert names_in(batch) == {"sampling_params": {"extra_args": {name.value: None for name in EngineField}}}


@pytest.mark.parametrize("field", EngineField)
def test_a_form_with_a_field_of_engines_is_refused(field):
    ask = parse_form(parts_of(field.value, b"{}"))
    with pytest.raises(ApiError, match=f"{field.value} is for the engine's operator"):
        without_engine_fields(ask)
    assert without_engine_fields(ask, {field}) is ask


def test_what_a_group_does_not_allow_is_not_let_through_inside_of_what_it_allows():
    allowed, nested = {EngineField.VLLM_XARGS}, {"kv_transfer_params": "x", "priority": 1, "top_a": 0.5}
    ask = parse(ApiKind.CHAT, orjson.dumps({"model": "llama", "messages": HELLO, "vllm_xargs": nested}))
    assert orjson.loads(without_engine_fields(ask, allowed).raw)["vllm_xargs"] == {"top_a": 0.5}
    both = allowed | {EngineField.KV_TRANSFER_PARAMS, EngineField.PRIORITY}
    assert without_engine_fields(ask, both) is ask
    with pytest.raises(ApiError, match="vllm_xargs is for"):
        without_engine_fields(parse_form(parts_of("vllm_xargs", orjson.dumps(nested))), allowed)
