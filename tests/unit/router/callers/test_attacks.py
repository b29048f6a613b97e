"""Attacks on what callers are told apart by, through a whole router on real sockets: what engines get is looked at."""

import asyncio
import contextlib
import json

import orjson
import pytest

from promptgroup_contract.access import Access, AccessType, Caller
from promptgroup_contract.caller_rules import NO_RULES, CallerLimits, CallerRules
from promptgroup_contract.table import CacheScope
from promptgroup_operator.engines.dialects.vllm import VLLM
from support.answered import Oracle, exact, keeping
from support.fakeengine import Call, engines, until
from support.keys import BY_KEY, KEY_A, KEY_B, write_keys
from support.tables import SYSTEM, group, revision, slot, table
from support.wire import Client, ask, chat, get, post, routing, run

A, B = (f"Authorization: Bearer {key}" for key in (KEY_A, KEY_B))
BY_HEADER = Access(AccessType.HEADER, header="x-user", sources=("127.0.0.2/32",))
GATEWAY = "127.0.0.2"
ISOLATED = CallerRules(salted=VLLM.salted)


@contextlib.asynccontextmanager
async def served(folder, *behaviours, access: Access = BY_KEY, rules: CallerRules = NO_RULES, known=None, **keys: str):
    """A router with a group of this access, and its engine."""
    write_keys(folder / "secrets", **(keys or {"team_a": KEY_A, "team_b": KEY_B}))
    async with engines(1, *behaviours) as (engine,):
        slots = (slot(0, address=engine.address),)
        made = (
            known(engine.address) if known else table(group("s", revision(slots=slots), access=access, callers=rules))
        )
        async with routing(folder, made, secrets_dir=folder / "secrets") as router:
            await until(lambda: router.state.keys_tried, "the keys")
            yield router, engine


def callers(router) -> set[str]:
    """Names under which requests were answered."""
    metrics = router.state.metrics.callers
    metrics.tell()
    return {caller for _, caller, _ in metrics.requests.values}


@contextlib.asynccontextmanager
async def connected_from(address: str, port: int):
    reader, writer = await asyncio.open_connection("127.0.0.1", port, local_addr=(address, 0))
    try:
        yield Client(reader, writer)
    finally:
        writer.transport.abort()


# --- The header of a gateway -----------------------------------------------------------------------------------------

NAMED = [
    ["X-User: alice"],
    ["x-user: alice", "X-Forwarded-For: 127.0.0.2", "Forwarded: for=127.0.0.2", "X-Real-IP: 127.0.0.2"],
    ["X_User: alice"],
    ["x-user: alice", "Connection: x-user"],
    ["X-USER: alice", "X-Forwarded-User: alice"],
]
MALFORMED = [
    ["X-User: alice", "X-User: bob"],
    ["X-User: alice", "x-uSeR: alice"],
    ["X-User: alice, bob"],
    ["X-User: alice;bob"],
    ["X-User:"],
    ["X-User:  "],
    ["X_User: alice"],
    ["X-User : alice"],
    ["X-User: alice\r\n bob"],
    ["X-User: ali\x00ce"],
    ["X-User: ali\rce"],
    ["X-User: \xe4lice"],
    ["X-User: " + "a" * 129],
    ["X-User: -others"],
    ['X-User: a"b'],
]


@pytest.mark.parametrize("version", ["1.1", "1.0"])
@pytest.mark.parametrize("fields", NAMED)
def test_nobody_but_the_gateway_names_a_caller(tmp_path, fields, version):
    async def test():
        async with served(tmp_path, access=BY_HEADER) as (router, engine):
            answer = await ask(router.port, post(chat(), *fields, version=version))
            assert answer.status == 401
            assert not engine.requests
            assert callers(router) == set()

    run(test())


@pytest.mark.parametrize("fields", MALFORMED)
def test_the_gateway_itself_names_one_caller_or_none(tmp_path, fields):
    async def test():
        async with served(tmp_path, access=BY_HEADER) as (router, engine):
            async with connected_from(GATEWAY, router.port) as client:
                data = post(chat(), "X-Mark: 1").replace(b"X-Mark: 1", "\r\n".join(fields).encode("latin-1"))
                assert (await client.ask(data)).status in (400, 401)
            assert not engine.requests
            assert callers(router) == set()

    run(test())


def test_a_name_is_of_one_request_and_not_of_those_behind_it(tmp_path):
    async def test():
        async with served(tmp_path, access=BY_HEADER) as (router, engine):
            async with connected_from(GATEWAY, router.port) as client:
                client.send(post(chat(), "X-User: alice") + post(chat()) + post(chat(), "X-User: bob") + post(chat()))
                assert [(await client.answer()).status for _ in range(4)] == [200, 401, 200, 401]
            assert len(engine.requests) == 2
            assert callers(router) == {"alice", "bob"}

    run(test())


def test_a_request_within_the_body_of_another_is_no_request(tmp_path):
    """A client behind the gateway must not have a request of its own take the gateway's place."""

    async def test():
        hidden = post(chat(), "X-User: admin")
        async with served(tmp_path, access=BY_HEADER) as (router, engine):
            for framing in (
                ["Transfer-Encoding: chunked"],
                ["Transfer-Encoding: xchunked"],
                ["Transfer-Encoding: chunked", "Transfer-Encoding: identity"],
                ["Transfer-Encoding:\x0bchunked"],
                ["Content-Length: 0"],
                ["Content-Length: +0"],
            ):
                async with connected_from(GATEWAY, router.port) as client:
                    body = b"0\r\n\r\n" + hidden
                    marked = post(chat(), "X-User: alice", "X-Mark: 1")
                    head = marked.partition(b"\r\n\r\n")[0].replace(b"X-Mark: 1", "\r\n".join(framing).encode())
                    client.send(head + b"\r\n\r\n" + body)
                    await client.closed()
            assert "admin" not in callers(router)
            assert not engine.requests

    run(test())


# --- Secrets with odd content ----------------------------------------------------------------------------------------

ODD = {
    "nothing": "",
    "blanks": " \n\t\n\r\n \x0b\x0c",
    "a short key": "short",
    "a key of a mebibyte": "k" * (2**20 - 100),
    "a key with a blank in it": "sk-aaaaaaaa aaaaaaaaaaaa",
    "the key of another": KEY_A,
    "bytes": "\x00\x01\x02" * 10,
    "a byte order mark": "\ufeff" + "k" * 24,
    "one that ends in a carriage return alone": "k" * 24 + "\r" + "m" * 4,
}


@pytest.mark.parametrize("content", ODD.values(), ids=ODD)
def test_odd_secrets_let_nobody_in_who_has_no_key_and_take_nobodys_away(tmp_path, content):
    async def test():
        async with served(tmp_path, team_a=KEY_A, zz=content) as (router, engine):
            for given in (
                "Authorization: Bearer ",
                "Authorization: Bearer",
                "Authorization: Bearer  ",
                "x-api-key:",
                "api-key:  ",
                "x-api-key: short",
                "x-api-key: sk-aaaaaaaa",
                f"Authorization: Basic {KEY_A}",
                f"Authorization: Bearer {KEY_A[:-1]}",
                f"Authorization: Bearer {KEY_A} x",
                f"Cookie: x-api-key={KEY_A}",
            ):
                assert (await ask(router.port, post(chat(), given))).status == 401
            assert not engine.requests
            assert (await ask(router.port, post(chat(), A))).status == 200
            assert callers(router) == {"team-a"}

    run(test())


@pytest.mark.parametrize("fields", [[A, B], [A, A], [A, f"x-api-key: {KEY_B}", f"x-api-key: {KEY_A}"]])
def test_a_credential_that_is_given_twice_is_refused(tmp_path, fields):
    async def test():
        async with served(tmp_path) as (router, engine):
            assert (await ask(router.port, post(chat(), *fields))).status == 400
            assert not engine.requests

    run(test())


# --- The isolation of caches -----------------------------------------------------------------------------------------

TURN = {"role": "user", "content": "Hi"}
SALT = "theirs"
RAW: dict[str, tuple[str, str]] = {
    "plain": ("/v1/chat/completions", '{"cache_salt": "theirs", %s}'),
    "twice": ("/v1/chat/completions", '{"cache_salt": "x", %s, "cache_salt": "theirs"}'),
    "escaped": ("/v1/chat/completions", r'{"cache\u005fsalt": "theirs", %s}'),
    "escaped throughout": (
        "/v1/chat/completions",
        '{"' + "".join(f"\\u{ord(each):04X}" for each in "cache_salt") + '": "theirs", %s}',
    ),
    "escaped and plain": ("/v1/chat/completions", r'{"cache_salt": "x", %s, "cach\u0065_salt": "theirs"}'),
    "behind": ("/v1/chat/completions", ' \n\t{%s, "cache_salt"\n:\t"theirs"}\n'),
    "null": ("/v1/chat/completions", '{%s, "cache_salt": null, "extra_key": ["theirs"]}'),
    "an object": ("/v1/chat/completions", '{%s, "cache_salt": {"cache_salt": "theirs"}}'),
    "SGLang's name": ("/v1/chat/completions", '{%s, "extra_key": "theirs"}'),
    "a text": ("/v1/completions", '{"cache_salt": "theirs", "prompt": "Once", %s}'),
    "several texts": ("/v1/completions", '{"prompt": ["Once", "Twice"], %s, "cache_salt": "theirs"}'),
    "token ids": ("/v1/completions", '{"prompt": [[1, 2], [3]], %s, "cache_salt": "theirs"}'),
    "a response": ("/v1/responses", r'{"input": "Hi", %s, "cache_s\u0061lt": "theirs"}'),
    "a message": ("/v1/messages", r'{"max_tokens": 5, %s, "cache\u005Fsalt": "theirs"}'),
    "large": ("/v1/chat/completions", r'{"user": "' + "x" * 300_000 + r'", %s, "cache\u005fsalt": "theirs"}'),
}


def members(document: bytes) -> list[tuple[str, object]]:
    """All members of the outermost object, those that are there twice included, as another parser reads them."""
    found: list[tuple[str, object]] = []

    def note(pairs):
        found[:] = pairs
        return dict(pairs)

    json.loads(document, object_pairs_hook=note)  # the outermost ends last
    return found


@pytest.mark.parametrize(("path", "body"), RAW.values(), ids=RAW)
def test_no_spelling_of_a_salt_reaches_an_engine_that_isolates_callers(tmp_path, path, body):
    async def test():
        fields = {"model": "llama"}
        if path.endswith(("/chat/completions", "/messages")):
            fields["messages"] = [TURN]
        if path.endswith("/chat/completions"):
            fields["messages"] = [{"role": "system", "content": SYSTEM}, TURN]
        sent = body.replace("%s", json.dumps(fields)[1:-1]).encode()
        async with served(tmp_path, rules=ISOLATED) as (router, engine):
            answer = await ask(router.port, post(sent, A, path=path))
            assert answer.status == 200, answer.body
            found = members(engine.requests[0].body)
            own = router.state.features.salts.of("chat", Caller("team-a")).salt
            assert [value for name, value in found if name == "cache_salt"] == [own]
            assert not {"extra_key", "request_id"} & {name for name, _ in found if path != "/v1/responses"}
            assert SALT.encode() not in engine.requests[0].body

    run(test())


def test_a_form_cannot_carry_a_salt_where_callers_are_isolated(tmp_path):
    form = (
        b'--XX\r\nContent-Disposition: form-data; name="model"\r\n\r\nllama\r\n'
        b'--XX\r\nContent-Disposition: form-data; name="cache_salt"\r\n\r\ntheirs\r\n--XX--\r\n'
    )

    async def test():
        async with served(tmp_path, rules=ISOLATED) as (router, engine):
            fields = (A, "Content-Type: multipart/form-data; boundary=XX")
            answer = await ask(router.port, post(form, *fields, path="/v1/audio/transcriptions"))
            assert (answer.status, answer.json["error"]["code"]) == (400, "isolation_not_supported")
            assert not engine.requests

    run(test())


PARTS = [
    {"type": "image_url", "image_url": {"url": "https://h/x.png"}, "uuid": "theirs"},
    {"type": "image_url", "image_url": None, "uuid": "theirs"},
    {"image_url": {"url": "https://h/x.png"}, "uuid": "theirs"},
    {"type": "video_url", "video_url": None, "uuid": "theirs"},
    {"type": "input_audio", "input_audio": None, "uuid": "theirs"},
    {"uuid": "theirs"},
]


@pytest.mark.parametrize("part", PARTS)
@pytest.mark.parametrize("role", ["user", "tool", "assistant"])
def test_an_image_that_another_has_sent_is_not_had_by_its_id(tmp_path, part, role):
    async def test():
        async with served(tmp_path, rules=ISOLATED) as (router, engine):
            messages = [{"role": "system", "content": SYSTEM}, TURN, {"role": role, "content": [part]}, TURN]
            answer = await ask(router.port, post({"model": "llama", "messages": messages}, A))
            assert answer.status in (200, 400)
            assert all(b"theirs" not in each.body for each in engine.requests)

    run(test())


def test_a_response_of_another_is_not_read_continued_or_cancelled_by_any_form_of_its_id(tmp_path):
    async def test():
        async with served(tmp_path, rules=ISOLATED) as (router, engine):
            asked = {"model": "s", "input": "Hi"}
            assert (await ask(router.port, post(asked, A, path="/v1/responses"))).status == 200
            made = orjson.loads(engine.requests[0].body)["request_id"]
            own = made if made.startswith("resp_") else f"resp_{made}"
            before = len(engine.requests)
            last = "A" if own[-1] != "A" else "B"
            for each in (own, own.upper(), own + "%00", own + "/../" + own, "%72esp_" + own[5:], own[:-1] + last):
                for path in (f"/v1/responses/{each}", f"/v1/responses/{each}/input_items", f"/v1/responses/{each}?x=1"):
                    assert (await ask(router.port, get(path, B))).status in (400, 401, 403, 404)
                cancel = await ask(router.port, post(b"", B, path=f"/v1/responses/{each}/cancel"))
                assert cancel.status in (400, 401, 403, 404, 405)
                continued = {**asked, "previous_response_id": each}
                assert (await ask(router.port, post(continued, B, path="/v1/responses"))).status in (400, 404)
            assert len(engine.requests) == before
            assert (await ask(router.port, get(f"/v1/responses/{own}", A))).status == 200

    run(test())


@pytest.mark.parametrize("isolated", [False, True])
def test_a_kept_answer_of_another_is_neither_given_nor_told_of(tmp_path, isolated):
    async def test():
        oracle = Oracle()
        rules = ISOLATED if isolated else NO_RULES

        def known(address):
            scope = CacheScope.GROUP if isolated else CacheScope.CALLER
            return keeping(address, access=BY_KEY, callers=rules, scope=scope)

        async with served(tmp_path, oracle, known=known) as (router, _):
            await ask(router.port, post(exact(), A))
            spoofs = [
                ["Cache-Control: only-if-cached"],
                ["Cache-Control: max-stale=9999, only-if-cached"],
                ["x-api-key-name: team-a", "Cache-Control: only-if-cached"],
                [],
            ]
            for fields in spoofs:
                answer = await ask(router.port, post(exact(), B, *fields))
                assert answer.status == (504 if any("only-if-cached" in each for each in fields) else 200)
                assert b"#1" not in answer.body
            assert oracle.inferences == 2

    run(test())


# --- Limits, and engines that lie ------------------------------------------------------------------------------------

LIES = [
    "1e300",
    "-5",
    '"40"',
    "99999999",
    "999999999999",
    "9" * 400,
    "NaN",
    "null",
    "true",
    "[40]",
    "1.5",
    "0x28",
    "-0",
]


@pytest.mark.parametrize("streamed", [False, True])
def test_an_engine_that_lies_about_tokens_breaks_no_count(tmp_path, streamed):
    lies = iter(LIES)

    async def behave(call: Call) -> None:
        lie = next(lies).encode()
        usage = b'"usage":{"prompt_tokens":%b,"completion_tokens":%b,"prompt_tokens_details":{"cached_tokens":%b}}'
        document = b'{"choices":[],%b}' % (usage % (lie, lie, lie))
        if streamed:
            call.begin_stream()
            call.chunk(b"data: " + document + b"\n\n")
            call.send(b"0\r\n\r\n")
        else:
            call.answer(document)

    async def test():
        limits = CallerRules(default=CallerLimits(requests_per_minute=1000, in_flight=2))
        async with served(tmp_path, behave, rules=limits) as (router, _):
            for _ in LIES:
                assert (await ask(router.port, post(chat(stream=streamed), A))).status == 200
            page = (await ask(router.admin_port, get("/metrics"))).body.decode()
            assert "NaN" not in page
            values = [float(line.rpartition(" ")[2]) for line in page.splitlines() if line and not line.startswith("#")]
            assert [value for value in values if not 0 <= value < 10**15] == []
            (account,) = router.state.features.limiter._accounts.values()
            assert (account.in_flight, account.minute_requests) == (0, len(LIES))
            assert account.minute_tokens >= 0

    run(test())


EMBEDDED = orjson.dumps({"data": [{"embedding": [0.1] * 64}], "usage": {"prompt_tokens": 300, "total_tokens": 300}})


async def embed(call: Call) -> None:
    call.answer(EMBEDDED)


@pytest.mark.parametrize("path", ["/v1/embeddings", "/rerank", "/score", "/classify", "/pooling"])
def test_embeddings_and_their_like_count_towards_limits_of_tokens(tmp_path, path):
    async def test():
        limits = CallerRules(default=CallerLimits(tokens_per_minute=1000))
        async with served(tmp_path, embed, rules=limits) as (router, engine):
            body = {"model": "s", "input": "Once " * 200}
            statuses = [(await ask(router.port, post(body, A, path=path))).status for _ in range(6)]
            assert statuses == [200] * 3 + [429] * 3
            assert len(engine.requests) == 3
            metrics = router.state.metrics.callers
            metrics.tell()
            assert metrics.prompt_tokens.values["chat/s", "team-a"] == 900
            # hit rates are of what engines keep in caches
            assert not router.state.metrics.prompt_tokens.values

    run(test())


@pytest.mark.parametrize("hostile", [-5, 0, 1, True, "x", 1.5, 2**63, None, [1], {"max_tokens": 1}])
def test_what_a_client_says_of_its_answers_length_opens_no_limit(tmp_path, hostile):
    async def answered(call: Call) -> None:
        call.answer(orjson.dumps({"usage": {"prompt_tokens": 40, "completion_tokens": 60}}))

    async def test():
        limits = CallerRules(default=CallerLimits(tokens_per_minute=500))
        async with served(tmp_path, answered, rules=limits) as (router, _):
            body = chat(max_tokens=hostile, max_completion_tokens=hostile, max_output_tokens=hostile, n=hostile)
            statuses = [(await ask(router.port, post(body, A))).status for _ in range(8)]
            assert statuses.count(200) <= 5
            assert set(statuses) <= {200, 400, 429}

    run(test())
