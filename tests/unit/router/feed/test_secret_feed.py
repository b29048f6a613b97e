import asyncio
import base64
import contextlib
from dataclasses import replace

import pytest

from promptgroup_contract.access import ANYBODY
from promptgroup_router.access.keyring import SecretRef
from promptgroup_router.decision.composition import router_state
from promptgroup_router.feed import secret_feed
from promptgroup_router.feed.secret_feed import FolderSecrets, SecretError, SecretFeed, credential_secrets, key_secrets
from support.fakeengine import until
from support.keys import BY_KEY, KEY_A, KEY_B, write_keys
from support.tables import group, table
from support.wire import run

REF = SecretRef("chat", "keys")


class Source:
    every = 0.01

    def __init__(self):
        self.found = {REF: {"team-a": KEY_A.encode()}}
        self.problem = ""
        self.reads = 0

    async def read(self, ref, kind="Secret"):
        self.reads += 1
        if self.problem:
            raise SecretError(self.problem)
        return self.found.get(ref)


@contextlib.asynccontextmanager
async def fed(source, *groups):
    state = router_state()
    feed = SecretFeed(state, source)
    task = asyncio.ensure_future(feed.run())
    state.install(table(*groups), "test", 0.0)
    feed.table_changed()
    try:
        yield state, feed
    finally:
        task.cancel()
        with contextlib.suppress(asyncio.CancelledError):
            await task


def name_of(state, key):
    found = state.features.authenticator.keyring.whose(key.encode(), "chat", ("keys",))
    return found.name if found is not None else None


CLOSED = group("support", access=BY_KEY)


def test_keys_are_read_again_and_a_secret_that_is_gone_has_none():
    async def test():
        source = Source()
        async with fed(source, CLOSED) as (state, _):
            await until(lambda: state.keys_tried, "the keys")
            assert name_of(state, KEY_A) == "team-a"
            source.found[REF] = {"team-a": KEY_B.encode()}
            await until(lambda: name_of(state, KEY_B), "the new key")
            assert name_of(state, KEY_A) is None
            del source.found[REF]
            await until(lambda: name_of(state, KEY_B) is None, "the end of the Secret")

    run(test())


def test_keys_outlive_an_outage_of_their_source():
    async def test():
        source = Source()
        async with fed(source, CLOSED) as (state, _):
            await until(lambda: state.keys_tried, "the keys")
            source.problem = "no connection"
            before = source.reads
            await until(lambda: source.reads > before + 3, "some reads")
            assert name_of(state, KEY_A) == "team-a"
            assert state.metrics.key_errors.values["secret",] >= 3

    run(test())


def test_a_router_is_not_ready_before_it_has_asked_for_the_keys():
    async def test():
        state = router_state()
        feed = SecretFeed(state, Source())
        assert not state.keys_tried
        task = asyncio.ensure_future(feed.run())
        await asyncio.sleep(0)
        assert not state.keys_tried  # there is no table yet
        state.install(table(CLOSED), "test", 0.0)
        feed.table_changed()
        await until(lambda: state.keys_tried, "the keys")
        task.cancel()

    run(test())


def test_what_nothing_refers_to_is_forgotten_and_not_read():
    async def test():
        source = Source()
        async with fed(source, CLOSED) as (state, feed):
            await until(lambda: state.keys_tried, "the keys")
            state.install(table(group("support")), "test", 0.0)
            feed.table_changed()
            await until(lambda: name_of(state, KEY_A) is None, "the keys to be forgotten")
            before = source.reads
            feed.table_changed()
            await asyncio.sleep(0.05)
            assert source.reads == before

    run(test())


def test_problems_are_logged_once(caplog):
    async def test():
        source = Source()
        source.found[REF] = {"team-a": b"short"}
        async with fed(source, CLOSED) as (state, _):
            await until(lambda: source.reads > 3, "some reads")
            source.found[REF] = {"team-a": KEY_A.encode()}
            await until(lambda: name_of(state, KEY_A), "the keys")

    with caplog.at_level("INFO", "promptgroup.access"):
        run(test())
    assert [record.getMessage() for record in caplog.records] == [
        "Secret with keys",
        "Secret with keys is good again",
    ]


def test_the_secrets_that_a_table_needs():
    more = replace(BY_KEY, secrets=("keys", "more"))
    known = table(CLOSED, group("other", access=more), group("open", access=ANYBODY), group("plain"))
    assert key_secrets(known, ANYBODY) == {REF, SecretRef("chat", "more")}
    default = replace(BY_KEY, secrets=("default",))
    assert key_secrets(table(group("plain", namespace="there")), default) == {SecretRef("there", "default")}


def test_a_folder_has_secrets_as_kubelets_mount_them(tmp_path):
    async def test():
        source = FolderSecrets(tmp_path)
        assert await source.read(REF) is None
        write_keys(tmp_path, team_a=KEY_A)
        (tmp_path / "chat" / "keys" / "..data").mkdir()
        assert await source.read(REF) == {"team-a": KEY_A.encode()}

    run(test())


@pytest.mark.parametrize(("namespace", "name"), [("chat", "../../etc"), ("chat", ".."), ("..", "etc"), ("", "keys")])
def test_no_name_leads_out_of_the_folder_or_the_namespace(tmp_path, namespace, name):
    async def test():
        api = Api({"data": {}})
        for folder in ("chat", "etc"):
            (tmp_path / "secrets" / folder).mkdir(parents=True)
        (tmp_path / "etc").mkdir()
        for place in ("etc", "secrets/etc", "secrets", "."):
            (tmp_path / place / "password").write_text("secret")
        ref = SecretRef(namespace, name)
        assert await FolderSecrets(tmp_path / "secrets").read(ref) is None
        assert await secret_feed.KubeSecrets(api).read(ref) is None
        assert not api.paths

    run(test())


def test_a_folder_that_is_too_large_is_not_read(tmp_path, monkeypatch):
    async def test():
        monkeypatch.setattr(secret_feed, "MAX_BYTES", 10)
        write_keys(tmp_path, team_a=KEY_A)
        with pytest.raises(SecretError, match="more than 10 bytes"):
            await FolderSecrets(tmp_path).read(REF)

    run(test())


class Api:
    def __init__(self, answer):
        self.answer = answer
        self.paths = []

    async def get(self, path):
        self.paths.append(path)
        if isinstance(self.answer, Exception):
            raise self.answer
        return self.answer


@pytest.mark.parametrize(
    ("answer", "expected"),
    [
        ({"data": {"team-a": base64.b64encode(b"key").decode()}}, {"team-a": b"key"}),
        ({"data": None}, {}),
        ({}, {}),
        (secret_feed.KubeError("gone", 404), None),
        (secret_feed.KubeError("forbidden", 403), SecretError),
        ([], SecretError),
        ({"data": [1]}, SecretError),
        ({"data": {"a": 1}}, SecretError),
        ({"data": {"a": "%"}}, SecretError),
    ],
)
def test_a_secret_of_the_api_server(answer, expected):
    async def test():
        api = Api(answer)
        source = secret_feed.KubeSecrets(api)
        if expected is SecretError:
            with pytest.raises(SecretError):
                await source.read(REF)
        else:
            assert await source.read(REF) == expected
        assert api.paths == ["/api/v1/namespaces/chat/secrets/keys"]

    run(test())


def test_the_credentials_that_features_need_are_read():
    features = router_state().features
    assert credential_secrets(table(group("embedder")), features) == frozenset()
    features.secrets.append(lambda table: [(group.namespace, group.name) for group in table.groups])
    assert credential_secrets(table(group("embedder")), features) == {SecretRef("chat", "embedder")}
