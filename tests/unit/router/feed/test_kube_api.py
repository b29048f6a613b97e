import asyncio
import contextlib
import ssl

import pytest

from promptgroup_router.base.core_settings import ApiServerAddress
from promptgroup_router.feed import kube_api
from promptgroup_router.feed.kube_api import KubeApi, KubeError
from support.fakekube import ROUTES, FakeKube, fake_kube
from support.hostile import HOSTILE, hostile_server
from support.tables import group
from support.wire import run

PATH = ROUTES.format("chat")


def with_kube(tmp_path, test) -> None:
    async def check():
        async with fake_kube(tmp_path) as kube:
            await test(kube, KubeApi(kube.server("chat")))

    run(check())


def test_get_answers_with_the_json_at_the_path(tmp_path):
    async def check(kube: FakeKube, api: KubeApi):
        kube.put(group("a"))
        found = await api.get(PATH)
        assert [item["metadata"]["name"] for item in found["items"]] == ["a"]

    with_kube(tmp_path, check)


def test_a_refusal_has_its_status_and_the_servers_words(tmp_path):
    async def check(kube: FakeKube, api: KubeApi):
        for status in (403, 500):
            kube.status = status
            with pytest.raises(KubeError, match=f"refused with {status}") as caught:
                await api.get(PATH)
            assert caught.value.status == status
            with pytest.raises(KubeError, match=f"refused with {status}"):
                await anext(api.watch(PATH + "?watch=1"))

    with_kube(tmp_path, check)


def test_the_token_is_read_anew_each_time(tmp_path):
    async def check(kube: FakeKube, api: KubeApi):
        kube.token = "token-2"
        with pytest.raises(KubeError) as caught:
            await api.get(PATH)
        assert caught.value.status == 401
        (tmp_path / "token").write_text("token-2\n")
        await api.get(PATH)

    with_kube(tmp_path, check)


def test_a_server_that_is_not_the_clusters_is_not_told_the_token(tmp_path):
    (tmp_path / "a").mkdir()
    (tmp_path / "b").mkdir()

    async def check():
        async with fake_kube(tmp_path / "a"), fake_kube(tmp_path / "b") as other:
            server = ApiServerAddress("127.0.0.1", other.port, tmp_path / "a", ("chat",))
            with pytest.raises(KubeError, match="certificate"):
                await KubeApi(server).get(PATH)
            assert other.seen == []

    run(check())


def test_a_watch_yields_events_as_they_come_until_it_ends(tmp_path):
    async def check(kube: FakeKube, api: KubeApi):
        async with contextlib.aclosing(api.watch(PATH + "?watch=1")) as events:
            first = asyncio.ensure_future(anext(events))
            await kube.watched()
            kube.put(group("a"))
            assert (await first)["type"] == "ADDED"
            kube.delete("chat", "a")
            assert (await anext(events))["type"] == "DELETED"
        kube.end_watches_at_once = True
        assert [event async for event in api.watch(PATH + "?watch=1")] == []

    with_kube(tmp_path, check)


def test_a_watch_that_breaks_is_an_error(tmp_path):
    async def check(kube: FakeKube, api: KubeApi):
        waiting = asyncio.ensure_future(anext(api.watch(PATH + "?watch=1")))
        await kube.watched()
        kube.cut_watches()
        with pytest.raises(KubeError):
            await waiting

    with_kube(tmp_path, check)


def test_a_watch_that_is_silent_is_given_up(tmp_path, monkeypatch):
    monkeypatch.setattr(kube_api, "SILENCE_SECONDS", 0.05)

    async def check(kube: FakeKube, api: KubeApi):
        with pytest.raises(KubeError, match="silent"):
            await anext(api.watch(PATH + "?watch=1"))

    with_kube(tmp_path, check)


def test_no_server_and_no_credentials(tmp_path):
    async def check():
        with pytest.raises(KubeError, match="token"):
            await KubeApi(ApiServerAddress("127.0.0.1", 1, tmp_path, ("chat",))).get(PATH)
        async with fake_kube(tmp_path):
            pass
        with pytest.raises(KubeError, match="no connection to"):
            await KubeApi(ApiServerAddress("127.0.0.1", 1, tmp_path, ("chat",))).get(PATH)

    run(check())


def test_a_list_is_read_in_pages_that_are_smaller_where_objects_are_large(tmp_path, monkeypatch):
    monkeypatch.setattr(kube_api, "MAX_PAGE", 3000)
    monkeypatch.setattr(kube_api, "PAGE", 10)

    async def check(kube: FakeKube, api: KubeApi):
        for number in range(25):
            kube.put_spec("chat", f"g{number}", {"text": "a" * 400})
        found = await api.list(PATH)
        assert [item["metadata"]["name"] for item in found["items"]] == [f"g{number}" for number in range(25)]
        assert found["metadata"]["resourceVersion"] == str(kube.version)
        assert kube.seen[:3] == [f"{PATH}?limit=10", f"{PATH}?limit=5", f"{PATH}?limit=5&continue=5"]
        monkeypatch.setattr(kube_api, "MAX_LIST", 8000)
        with pytest.raises(KubeError, match="the list is larger than 8000 bytes"):
            await api.list(PATH)
        monkeypatch.setattr(kube_api, "MAX_PAGE", 100)
        monkeypatch.setattr(kube_api, "MAX_ANSWER", 100)
        with pytest.raises(KubeError, match="larger than 100 bytes"):
            await api.list(PATH)

    with_kube(tmp_path, check)


@pytest.mark.heavy
@pytest.mark.parametrize("answer", HOSTILE)
def test_every_exchange_with_a_hostile_server_ends(tmp_path, monkeypatch, answer):
    monkeypatch.setattr(kube_api, "ANSWER_SECONDS", 0.3)
    monkeypatch.setattr(kube_api, "SILENCE_SECONDS", 0.3)
    monkeypatch.setattr(kube_api, "PAGE", 2)
    monkeypatch.setattr(kube_api, "MAX_ANSWER", 1 << 16)
    monkeypatch.setattr(kube_api, "MAX_EVENT", 1 << 16)

    async def check(kube: FakeKube, _: KubeApi):
        context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
        context.load_cert_chain(tmp_path / "tls.pem")
        with hostile_server(HOSTILE[answer], context) as address:
            api = KubeApi(ApiServerAddress("127.0.0.1", int(address.rpartition(":")[2]), tmp_path, ("chat",)))
            for ask in (api.get(PATH), api.list(PATH), anext(api.watch(PATH + "?watch=1"))):
                with pytest.raises(KubeError):
                    await ask

    with_kube(tmp_path, check)
