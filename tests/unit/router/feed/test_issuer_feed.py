import asyncio
import contextlib
import datetime as dt
import ssl
import time
from ipaddress import ip_network

import pytest

from promptgroup_contract.access import ANYBODY
from promptgroup_router.decision.composition import router_state
from promptgroup_router.feed import issuer_feed, table_file
from promptgroup_router.feed.issuer_feed import IssuerFeed, issuers
from promptgroup_router.proxy import key_waits
from promptgroup_router.server import Router
from support.fakeengine import engines, until
from support.tables import group, revision, slot, table
from support.tokens import by_token, jwks, publishing, token
from support.wire import ask, chat, connected, post, run, settings_for

ALLOWED = (ip_network("127.0.0.0/8"),)
SOON = int(dt.datetime.now(dt.UTC).timestamp()) + 3600


@contextlib.asynccontextmanager
async def followed(publisher, *, networks=ALLOWED):
    state = router_state()
    context = ssl.create_default_context(cafile=publisher.ca)
    feed = IssuerFeed(state, time.monotonic, lambda: context, networks)
    task = asyncio.ensure_future(feed.run())
    state.install(table(group("support", access=by_token(publisher.uri))), "test", 0.0)
    try:
        yield state, feed
    finally:
        task.cancel()
        with contextlib.suppress(asyncio.CancelledError):
            await task


def issuer_of(state):
    (found,) = state.features.authenticator.issuers.values()
    return found


def test_keys_are_read_and_a_new_one_is_read_when_a_token_needs_it(tmp_path, monkeypatch):
    monkeypatch.setattr(issuer_feed, "LOOK_SECONDS", 0.01)
    monkeypatch.setattr(issuer_feed, "REFRESH_SECONDS", 0.0)

    async def test():
        async with publishing(tmp_path) as publisher, followed(publisher) as (state, _):
            assert not state.keys_tried
            await until(lambda: state.keys_tried, "the keys")
            assert publisher.reads == 1
            publisher.document = jwks("one", "two")
            issuer_of(state).wanted = True
            await until(lambda: "two" in issuer_of(state)._keys, "the new key")
            assert publisher.reads == 2

    run(test())


def test_keys_outlive_an_outage_and_a_garbled_answer(tmp_path, monkeypatch):
    monkeypatch.setattr(issuer_feed, "LOOK_SECONDS", 0.01)
    monkeypatch.setattr(issuer_feed, "FIRST_BACKOFF", 0.02)
    monkeypatch.setattr(issuer_feed, "FOLLOW_SECONDS", 0.02)

    async def test():
        async with publishing(tmp_path) as publisher, followed(publisher) as (state, _):
            await until(lambda: state.keys_tried, "the keys")
            errors = state.metrics.key_errors
            publisher.status = 500
            await until(lambda: errors.values.get(("issuer",), 0) >= 2, "failures")
            publisher.status, publisher.document = 200, b"<html>no keys</html>"
            before = errors.values["issuer",]
            await until(lambda: errors.values["issuer",] > before, "another failure")
            assert "one" in issuer_of(state)._keys
            publisher.document = jwks("two")
            await until(lambda: "two" in issuer_of(state)._keys, "the end of the outage")

    run(test())


def test_an_issuer_that_no_group_names_is_not_followed(tmp_path, monkeypatch):
    monkeypatch.setattr(issuer_feed, "LOOK_SECONDS", 0.01)

    async def test():
        async with publishing(tmp_path) as publisher, followed(publisher) as (state, _):
            await until(lambda: state.keys_tried, "the keys")
            state.install(table(group("support")), "test", 0.0)
            await until(lambda: not state.features.authenticator.issuers, "the issuer to be forgotten")

    run(test())


def test_an_issuer_on_the_routers_own_machine_is_not_asked(tmp_path):
    async def test():
        async with publishing(tmp_path) as publisher, followed(publisher, networks=()) as (state, _):
            await until(lambda: state.keys_tried, "an attempt")
            assert publisher.reads == 0
            assert state.metrics.key_errors.values == {("issuer",): 1}

    run(test())


def test_the_issuers_of_a_table():
    one, two = by_token(), by_token("https://two.example/keys")
    known = table(group("a", access=one), group("b", access=one), group("c", access=two), group("d", access=ANYBODY))
    assert {each.jwks_uri for each in issuers(known, ANYBODY)} == {one.jwks_uri, two.jwks_uri}
    assert {each.jwks_uri for each in issuers(table(group("a")), one)} == {one.jwks_uri}


@pytest.mark.heavy
def test_an_outage_of_an_issuer_and_new_keys_fail_no_request_under_load(tmp_path, monkeypatch):
    """The issuer publishes a second key before it signs with it, vanishes, hangs, and comes back with it alone."""
    monkeypatch.setattr(issuer_feed, "LOOK_SECONDS", 0.01)
    monkeypatch.setattr(issuer_feed, "FIRST_BACKOFF", 0.02)
    monkeypatch.setattr(issuer_feed, "LAST_BACKOFF", 0.05)
    monkeypatch.setattr(issuer_feed, "FOLLOW_SECONDS", 0.05)

    async def test():
        current, failed, done, stop = ["one"], [], [0], asyncio.Event()
        async with publishing(tmp_path) as publisher, engines(1) as (fake,):
            slots = (slot(0, address=fake.address),)
            known = table(group("support", revision(slots=slots), access=by_token(publisher.uri)))
            async with routed(tmp_path, known, publisher) as router:
                await until(lambda: router.state.keys_tried, "the keys")

                async def client(number):
                    turn = 0
                    async with connected(router.port) as one:
                        while not stop.is_set():
                            turn += 1
                            given = token(current[0], sub=f"c{number}", exp=SOON + turn % 50).decode()
                            answer = await one.ask(post(chat(), f"Authorization: Bearer {given}"))
                            done[0] += 1
                            if answer.status != 200:
                                failed.append((answer.status, answer.body))

                async def some(what):
                    before = done[0]
                    await until(lambda: done[0] > before + 10, what)

                clients = [asyncio.ensure_future(client(number)) for number in range(2)]
                publisher.document = jwks("one", "two")
                (issuer,) = router.state.features.authenticator.issuers.values()
                await until(lambda: "two" in issuer._keys, "the second key")
                publisher.status = 503
                await some("requests in the outage")
                current[0] = "two"
                publisher.hangs.clear()
                await some("requests while the issuer hangs")
                publisher.document, publisher.status = jwks("two"), 200
                publisher.hangs.set()
                await until(lambda: "one" not in issuer._keys, "the end of the outage")
                await some("requests after it")
                stop.set()
                await asyncio.gather(*clients)
                assert failed == []
                old = token("one", exp=SOON).decode()
                answer = await ask(router.port, post(chat(), f"Authorization: Bearer {old}"))
                assert answer.status == 401

    run(test())


@pytest.mark.heavy
def test_an_issuer_that_replaces_its_key_without_notice_fails_no_request(tmp_path, monkeypatch):
    monkeypatch.setattr(issuer_feed, "LOOK_SECONDS", 0.01)
    monkeypatch.setattr(issuer_feed, "REFRESH_SECONDS", 0.05)
    monkeypatch.setattr(key_waits, "WAIT_SECONDS", 60.0)

    async def test():
        async with serving(tmp_path) as (publisher, router):
            for key in ("two", "three", "four"):
                publisher.document = jwks(key)
                asks = [ask(router.port, post(chat(), bearing(key, exp=SOON + number))) for number in range(8)]
                assert [answer.status for answer in await asyncio.gather(*asks)] == [200] * 8
            assert (await ask(router.port, post(chat(), bearing("one")))).status == 401

    run(test())


@pytest.mark.heavy
def test_keys_that_are_made_up_make_an_issuer_be_asked_rarely(tmp_path, monkeypatch):
    """Each is judged by a read that began after it came, and no two reads are near."""
    monkeypatch.setattr(issuer_feed, "LOOK_SECONDS", 0.01)
    monkeypatch.setattr(issuer_feed, "REFRESH_SECONDS", 0.0)
    monkeypatch.setattr(key_waits, "WAIT_SECONDS", 60.0)

    async def test():
        async with serving(tmp_path) as (publisher, router):
            made_up = [bearing("two", headers={"kid": f"made-up-{number}"}) for number in range(40)]
            answers = await asyncio.gather(*(ask(router.port, post(chat(), each)) for each in made_up))
            assert {answer.status for answer in answers} == {401}
            assert router.state.metrics.access_refused.values == {("invalid_token",): 40}
            monkeypatch.setattr(issuer_feed, "REFRESH_SECONDS", 1e9)
            monkeypatch.setattr(key_waits, "WAIT_SECONDS", 0.0)
            before = publisher.reads
            answers = await asyncio.gather(*(ask(router.port, post(chat(), each)) for each in made_up))
            assert {(answer.status, answer.json["error"]["code"]) for answer in answers} == {
                (503, "access_not_available")
            }
            assert publisher.reads == before

    run(test())


@pytest.mark.heavy
def test_whoever_waits_for_an_issuer_that_hangs_is_told_in_time_and_keeps_nobody_waiting(tmp_path, monkeypatch):
    monkeypatch.setattr(issuer_feed, "LOOK_SECONDS", 0.01)
    monkeypatch.setattr(issuer_feed, "REFRESH_SECONDS", 0.0)
    monkeypatch.setattr(key_waits, "MOST_WAITING", 3)

    async def test():
        async with serving(tmp_path) as (publisher, router):
            publisher.hangs.clear()
            waits = router._clients.handler._key_waits
            asking = [asyncio.ensure_future(ask(router.port, post(chat(), bearing("two")))) for _ in range(2)]
            async with connected(router.port) as leaving:
                leaving.send(post(chat(), bearing("two")))
                await until(lambda: len(waits._waiting) == 3, "those who wait")
                answer = await ask(router.port, post(chat(), bearing("two")))
                assert (answer.status, answer.headers[b"retry-after"]) == (503, b"1")  # as many wait as may
                assert (await ask(router.port, post(chat(), bearing("one")))).status == 200
            await until(lambda: len(waits._waiting) == 2, "the one who left to be forgotten")
            monkeypatch.setattr(key_waits, "WAIT_SECONDS", 0.0)
            assert [answer.status for answer in await asyncio.gather(*asking)] == [503, 503]
            assert waits._waiting == {}

    run(test())


def test_an_issuer_that_is_known_to_be_away_is_not_waited_for(tmp_path, monkeypatch):
    monkeypatch.setattr(issuer_feed, "LOOK_SECONDS", 0.01)
    monkeypatch.setattr(issuer_feed, "REFRESH_SECONDS", 0.0)
    monkeypatch.setattr(issuer_feed, "FIRST_BACKOFF", 1e9)

    async def test():
        async with serving(tmp_path) as (publisher, router):
            publisher.status = 500
            # the first waits for the read that fails, the second for nothing
            for _ in range(2):
                answer = await ask(router.port, post(chat(), bearing("two")))
                assert (answer.status, answer.json["error"]["code"]) == (503, "access_not_available")
                assert "cannot be asked" in answer.json["error"]["message"]
            assert publisher.reads == 2

    run(test())


def bearing(key, **fields):
    return "Authorization: Bearer " + token(key, **({"exp": SOON} | fields)).decode()


@contextlib.asynccontextmanager
async def serving(folder):
    """A router that has read the keys of an issuer, whose tokens its group takes."""
    async with publishing(folder) as publisher, engines(1) as (fake,):
        slots = (slot(0, address=fake.address),)
        known = table(group("support", revision(slots=slots), access=by_token(publisher.uri)))
        async with routed(folder, known, publisher) as router:
            await until(lambda: router.state.keys_tried, "the keys")
            yield publisher, router


@contextlib.asynccontextmanager
async def routed(folder, known, publisher):
    """A router that may ask issuers on this machine, as `--allow-networks` lets one in a pod."""
    path = folder / "table.json"
    table_file.write(path, known)
    router = Router(settings_for(path, issuer_ca=publisher.ca))
    router.core._issuers._networks = ALLOWED
    await router.start()
    try:
        yield router
    finally:
        await router.stop()
