"""Requests of callers whom groups know by their API keys, through a whole router."""

import asyncio
import contextlib
from dataclasses import replace

import orjson
import pytest

from promptgroup_contract.access import ANYBODY, Access, AccessType
from promptgroup_contract.table import ModelAlias, Policy
from support.fakeengine import engines, until
from support.keys import BY_KEY, KEY_A, KEY_A2, KEY_B, write_keys
from support.tables import group, revision, slot, table
from support.wire import ask, chat, connected, get, post, routing, run

OTHER = "You are somebody else's assistant, whom nobody here knows."


@contextlib.asynccontextmanager
async def served(folder, access=BY_KEY, *more, default=ANYBODY):
    """A router with a group `support` of this access, and what its engine was asked."""
    async with engines(1) as (fake,):
        slots = (slot(0, address=fake.address),)
        known = table(group("support", revision(slots=slots), access=access), *more)
        async with routing(folder, known, secrets_dir=folder / "secrets", access=default) as router:
            await until(lambda: router.state.keys_tried, "the keys")
            yield router, fake


def key(value: str) -> str:
    return f"Authorization: Bearer {value}"


@pytest.fixture
def folder(tmp_path):
    write_keys(tmp_path / "secrets", team_a=KEY_A, team_b=KEY_B)
    return tmp_path


def test_a_caller_with_a_key_is_served_counted_by_name_and_keeps_the_key_from_the_engine(folder):
    async def test():
        async with served(folder) as (router, fake):
            for header in (key(KEY_A), f"x-api-key: {KEY_A}"):
                assert (await ask(router.port, post(chat(), header, "Cookie: secret"))).status == 200
            router.state.metrics.callers.tell()
            assert router.state.metrics.callers.requests.values == {("chat/support", "team-a", "200"): 2}
            for request in fake.requests:
                assert not {b"authorization", b"x-api-key", b"cookie"} & request.head.fields.keys()
            page = await ask(router.admin_port, get("/metrics"))
            assert KEY_A.encode() not in page.body

    run(test())


def test_a_group_may_have_credentials_passed_on(folder):
    async def test():
        async with served(folder, replace(BY_KEY, passes_credentials=True)) as (router, fake):
            await ask(router.port, post(chat(), key(KEY_A)))
            assert fake.requests[0].head.fields[b"authorization"] == f"Bearer {KEY_A}".encode()
        async with served(folder, ANYBODY) as (router, fake):
            await ask(router.port, post(chat(), key(KEY_A)))
            assert b"authorization" not in fake.requests[0].head.fields

    run(test())


@pytest.mark.parametrize("body", [chat(), chat(system="", model="support"), chat(system=OTHER), {"broken": True}])
def test_without_a_key_nothing_is_told_and_no_engine_is_asked(folder, body):
    async def test():
        async with served(folder) as (router, fake):
            answer = await ask(router.port, post(body))
            assert answer.status == 401
            assert answer.headers[b"www-authenticate"] == b"Bearer"
            assert answer.json["error"]["code"] == "missing_credential"
            answer = await ask(router.port, post(body, key("sk-" + "x" * 20)))
            assert (answer.status, answer.json["error"]["code"]) == (401, "invalid_api_key")
            assert not fake.requests
            assert sum(router.state.metrics.access_refused.values.values()) == 2

    run(test())


def test_refusals_have_the_form_of_the_api(folder):
    async def test():
        body = {"model": "support", "max_tokens": 5, "messages": [{"role": "user", "content": "Hi"}]}
        async with served(folder, replace(BY_KEY, callers=("team-b",))) as (router, _):
            answer = await ask(router.port, post(body, path="/v1/messages"))
            assert (answer.status, answer.json["error"]["type"]) == (401, "authentication_error")
            answer = await ask(router.port, post(body, f"x-api-key: {KEY_A}", path="/v1/messages"))
            assert (answer.status, answer.json["error"]["type"]) == (403, "permission_error")
            answer = await ask(router.port, post(body, key(KEY_A)))
            assert (answer.status, answer.json["error"]["code"]) == (403, "not_allowed")

    run(test())


def test_models_are_listed_to_those_who_may_use_them(folder):
    async def test():
        opened = group("open", revision("Another prompt.", slots=0), access=ANYBODY, model="small")
        async with served(folder, BY_KEY, opened) as (router, _):
            for sent, names in (([], {"small", "open"}), ([key(KEY_A)], {"small", "open", "llama", "support"})):
                answer = await ask(router.port, get("/v1/models", *sent))
                assert {model["id"] for model in answer.json["data"]} == names
            assert (await ask(router.port, get("/v1/models/llama"))).status == 404
            assert (await ask(router.port, get("/v1/models/support"))).status == 401
            assert (await ask(router.port, get("/v1/models/support", key(KEY_A)))).status == 200
        async with served(folder) as (router, _):
            assert (await ask(router.port, get("/v1/models"))).status == 401

    run(test())


def test_a_stored_response_is_its_groups(folder):
    async def test():
        async with served(folder) as (router, fake):
            asked = {"model": "support", "input": "Hi"}
            await ask(router.port, post(asked, key(KEY_A), path="/v1/responses"))
            made = orjson.loads(fake.requests[0].body)["request_id"]
            path = f"/v1/responses/{made if made.startswith('resp_') else 'resp_' + made}"
            assert (await ask(router.port, get(path))).status == 401
            assert (await ask(router.port, get(path, key(KEY_A)))).status == 200

    run(test())


@pytest.mark.heavy
def test_keys_rotate_under_load_without_a_failed_request(folder):
    """Callers change from the old key to the new one while both hold, as the how-to guide has it."""

    async def test():
        current, failed, done, stop = [KEY_A], [], [0], asyncio.Event()
        async with served(folder) as (router, _):

            async def client():
                async with connected(router.port) as one:
                    while not stop.is_set():
                        answer = await one.ask(post(chat(), key(current[0])))
                        done[0] += 1
                        if answer.status != 200:
                            failed.append(answer.status)

            clients = [asyncio.ensure_future(client()) for _ in range(4)]
            keyring = router.state.features.authenticator.keyring
            write_keys(folder / "secrets", team_a=f"{KEY_A}\n{KEY_A2}\n", team_b=KEY_B)
            await until(lambda: keyring.whose(KEY_A2.encode(), "chat", ("keys",)), "the new key")
            current[0] = KEY_A2
            before = done[0]
            await until(lambda: done[0] > before + 20, "requests with the new key")
            write_keys(folder / "secrets", team_a=KEY_A2, team_b=KEY_B)
            await until(lambda: not keyring.whose(KEY_A.encode(), "chat", ("keys",)), "the end of the old key")
            before = done[0]
            await until(lambda: done[0] > before + 20, "requests without the old key")
            stop.set()
            await asyncio.gather(*clients)
            assert failed == []
            assert (await ask(router.port, post(chat(), key(KEY_A)))).status == 401

    run(test())


@pytest.mark.heavy
@pytest.mark.parametrize("sent", [key, "x-api-key: {}".format])
def test_a_key_that_is_withdrawn_is_refused_on_a_connection_that_sent_it_before(folder, sent):
    async def test():
        async with served(folder) as (router, fake), connected(router.port) as one:
            keyring = router.state.features.authenticator.keyring
            for _ in range(2):
                assert (await one.ask(post(chat(), sent(KEY_A)))).status == 200
            write_keys(folder / "secrets", team_a=KEY_A2, team_b=KEY_B)
            await until(lambda: not keyring.whose(KEY_A.encode(), "chat", ("keys",)), "the end of the old key")
            answer = await one.ask(post(chat(), sent(KEY_A)))
            assert (answer.status, answer.json["error"]["code"]) == (401, "invalid_api_key")
            assert (await one.ask(post(chat(), sent(KEY_A2)))).status == 200
            assert len(fake.requests) == 3

    run(test())


def test_a_default_holds_for_groups_that_say_nothing(folder):
    async def test():
        async with served(folder, None, default=BY_KEY) as (router, _):
            assert (await ask(router.port, post(chat()))).status == 401
            assert (await ask(router.port, post(chat(), key(KEY_B)))).status == 200

    run(test())


def test_a_session_stays_where_it_is_when_the_callers_key_changes(folder):
    async def test():
        write_keys(folder / "secrets", team_a=f"{KEY_A}\n{KEY_A2}", team_b=KEY_B)
        async with served(folder) as (router, _):
            for sent in (KEY_A, KEY_A2):
                await ask(router.port, post(chat("x" * 300), key(sent)))
            assert len(router.state.balancer.locations) == 1
            await ask(router.port, post(chat("x" * 300), key(KEY_B)))
            assert len(router.state.balancer.locations) == 2

    run(test())


def test_a_gateways_header_counts_from_its_address_and_once(folder):
    async def test():
        access = Access(AccessType.HEADER, header="x-user", sources=("127.0.0.0/8",))
        async with served(folder, access) as (router, _):
            assert (await ask(router.port, post(chat(), "X-User: team-a"))).status == 200
            assert (await ask(router.port, post(chat(), "X-User: admin", "X-User: team-a"))).status == 401
            assert (await ask(router.port, post(chat()))).status == 401
            router.state.metrics.callers.tell()
            assert router.state.metrics.callers.requests.values == {("chat/support", "team-a", "200"): 1}
        async with served(folder, replace(access, sources=("10.0.0.0/8",))) as (router, _):
            assert (await ask(router.port, post(chat(), "X-User: team-a"))).status == 401

    run(test())


def test_each_engine_gets_the_credential_that_it_asks_for_and_not_the_clients(tmp_path):
    async def test():
        write_keys(tmp_path / "secrets", "old-key", key="engine-key-1\n")
        write_keys(tmp_path / "secrets", "new-key", key="engine-key-2")
        async with engines(3) as fakes:
            told = ("old-key/key", "new-key/key", "")
            slots = tuple(
                replace(slot(index, address=fake.address), credential=told[index]) for index, fake in enumerate(fakes)
            )
            access = Access(passes_credentials=True)
            known = table(group("support", revision(slots=slots), access=access, policy=Policy.ROUND_ROBIN))
            async with routing(tmp_path, known, secrets_dir=tmp_path / "secrets") as router:
                await until(lambda: router.state.keys_tried, "the credentials")
                for _ in range(6):
                    assert (await ask(router.port, post(chat(), key("clients-own")))).status == 200
                got = [{request.head.fields.get(b"authorization") for request in fake.requests} for fake in fakes]
                assert got == [{b"Bearer engine-key-1"}, {b"Bearer engine-key-2"}, {b"Bearer clients-own"}]
                page = await ask(router.admin_port, get("/table"))
                assert b"engine-key-1" not in page.body
                assert b"old-key/key" in page.body

    run(test())


def test_an_engine_whose_credential_is_not_known_gets_nothing_and_the_client_is_not_blamed(tmp_path):
    async def test():
        async with engines(2) as fakes:
            slots = (
                replace(slot(0, address=fakes[0].address), credential="engine-key/key"),
                slot(1, address=fakes[1].address),
            )
            known = table(group("support", revision(slots=slots), policy=Policy.ROUND_ROBIN))
            async with routing(tmp_path, known, secrets_dir=tmp_path / "secrets") as router:
                for _ in range(4):  # another replica answers
                    assert (await ask(router.port, post(chat()))).status == 200
                alone = table(group("support", revision(slots=slots[:1])), version="v2")
                router.state.install(alone, "test", router.core.clock())
                answer = await ask(router.port, post(chat()))
                assert answer.status == 502
                assert "credential of the engine not read yet" in answer.json["error"]["message"]
                assert not fakes[0].requests

    run(test())


def test_an_alias_lets_nobody_in_whom_the_model_does_not(folder):
    async def test():
        hidden = replace(BY_KEY, callers=("team-b",))
        async with engines(1) as (fake,):
            slots = (slot(0, address=fake.address),)
            mine = group("support", revision(slots=slots), access=hidden)
            # another group of the model, open to each key, has the alias
            other = group("open", revision(OTHER, slots=slots), access=BY_KEY, aliases=(ModelAlias("gpt"),))
            async with routing(folder, table(mine, other), secrets_dir=folder / "secrets") as router:
                await until(lambda: router.state.keys_tried, "the keys")
                for model in ("llama", "gpt"):
                    for header, status in (("X-Nobody: x", 401), (key(KEY_A), 403), (key(KEY_B), 200)):
                        answer = await ask(router.port, post(chat(model=model), header))
                        assert (model, header, answer.status) == (model, header, status)
                    answer = await ask(router.port, post(chat(system=OTHER, model=model), key(KEY_A)))
                    assert answer.served_by.startswith("chat/open/")

    run(test())
