"""No way leads `kv_transfer_params` to an engine, nor a header that steers it.

With that field a vLLM engine ends, or reads what it computed for others.
"""

import orjson
import pytest

from promptgroup_contract.caller_rules import CallerRules, EngineField
from promptgroup_contract.table import CacheScope, ResponseCaching
from promptgroup_router.decision.composition import router_state
from support.engineheaders import JUDGED
from support.fakeengine import engines
from support.grpcclient import OneRequest
from support.tables import SYSTEM, group, revision, slot, table
from support.wire import ask, chat, post, routing, run

KV = "kv_transfer_params"
FORGED = {"do_remote_prefill": True, "remote_block_ids": [[1, 2]], "remote_host": "198.51.100.7", "remote_port": 5600}
HELLO = [{"role": "user", "content": "Hi"}]
LONG = [{"role": "user", "content": "word " * 60_000}]
WAYS = {
    "a group's prompt": ("/v1/chat/completions", chat()),
    "a group's name": ("/v1/chat/completions", {"model": "support", "messages": HELLO}),
    "a prompt that nobody declares": ("/v1/chat/completions", {"model": "llama", "messages": HELLO}),
    "a text": ("/v1/completions", {"model": "llama", "prompt": SYSTEM + "Hi"}),
    "a list of texts": ("/v1/completions", {"model": "llama", "prompt": [SYSTEM, "Hi"]}),
    "a message of Anthropic's API": ("/v1/messages", {"model": "llama", "messages": HELLO, "max_tokens": 5}),
    "a response": ("/v1/responses", {"model": "llama", "input": "Hi"}),
    "a response in the background": ("/v1/responses", {"model": "support", "input": "Hi", "background": True}),
    "tokens": ("/tokenize", {"model": "llama", "messages": HELLO}),
    "an embedding": ("/v1/embeddings", {"model": "llama", "input": "Hi"}),
    "a path that is passed": ("/v1/plugin", {"model": "llama", "input": "Hi"}),
    "a path that is passed, in a body above 256 KiB": ("/v1/plugin", {"model": "llama", "messages": LONG}),
    "an answer that is kept": ("/v1/chat/completions", chat(temperature=0)),
    "a body above 256 KiB": ("/v1/chat/completions", {"model": "llama", "messages": LONG}),
    "a group's prompt in a body above 256 KiB": ("/v1/chat/completions", chat("word " * 60_000)),
    "a body above 256 KiB by name": ("/v1/chat/completions", {"model": "support", "messages": LONG}),
}
SPELLED = {
    "plainly": b'"kv_transfer_params":%b',
    "with escapes": b'"kv\\u005ftransfer\\u005Fparams":%b',
    "twice": b'"kv_transfer_params":null,"kv_transfer_params":%b',
    "first of two": b'"kv_transfer_params":%b,"kv_transfer_params":null',
    "among plugins' arguments": b'"vllm_xargs":{"kv_transfer_params":%b}',
    "among those of sampling": b'"sampling_params":{"extra_args":{"kv_transfer_params":%b}}',
    "in the second of a batch": b'"sampling_params":[{},{"kv_transfer_params":%b}]',
}
STEERING = [
    f"{name}: steered"
    for name, judged in JUDGED.items()
    if not judged.passes and name not in {"content-length", "authorization", "x-api-key"}
]
PICKED = {way: found for way, found in WAYS.items() if "passed" not in way and "256" not in way}


def body_of(document: dict, spelled: bytes) -> bytes:
    return b"{" + spelled % orjson.dumps(FORGED) + b"," + orjson.dumps(document)[1:]


def known(address: str = "10.0.0.1:8000"):
    """A group that allows plugins' arguments, beside one that allows all and has no replica of the first."""
    made = revision(slots=(slot(0, address=address),))
    allows = CallerRules(allowed=frozenset((EngineField.VLLM_XARGS,)))
    caching = ResponseCaching(ttl=60, max_bytes=2**22, scope=CacheScope.GROUP)
    loose = group("loose", revision("Another prompt.", ()), callers=CallerRules(allowed=frozenset(EngineField)))
    return table(group("support", made, callers=allows, responses=caching), loose)


def keys_in(value: object):
    """Every name of a member, at any depth."""
    for name, inner in (
        value.items() if isinstance(value, dict) else enumerate(value if isinstance(value, list) else ())
    ):
        yield name
        yield from keys_in(inner)


@pytest.mark.heavy
@pytest.mark.parametrize("spelled", SPELLED)
def test_no_way_through_a_router(tmp_path, spelled):
    async def check():
        async with (
            engines(1) as (engine,),
            routing(tmp_path, known(engine.address), pass_paths=("/v1/plugin",)) as router,
        ):
            for way, (path, document) in WAYS.items():
                engine.requests.clear()
                answer = await ask(router.port, post(body_of(document, SPELLED[spelled]), *STEERING, path=path))
                assert answer.status == 200, (way, answer.body)
                (seen,) = engine.requests
                assert KV not in keys_in(orjson.loads(seen.body)), way
                values = [field.value for field in seen.head.headers]
                assert b"steered" not in values, way

    run(check())


@pytest.mark.parametrize("way", PICKED)
@pytest.mark.parametrize("spelled", SPELLED)
def test_no_way_behind_a_picker(way, spelled):
    state = router_state()
    state.install(known(), "file", 0.0)
    request, (path, document) = OneRequest(state), WAYS[way]
    request.head(_path=path)
    responses = request.body(body_of(document, SPELLED[spelled]))
    body = responses[1].request_body.response.body_mutation.streamed_response.body
    assert KV not in keys_in(orjson.loads(body))
