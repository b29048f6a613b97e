import asyncio
import base64
import contextlib

import pytest

from promptgroup_contract.table import PromptRef, RoutingTable, TableError
from promptgroup_router.decision.composition import router_state
from promptgroup_router.feed import kubernetes_feed
from promptgroup_router.feed.kube_api import KubeApi
from promptgroup_router.feed.kubernetes_feed import KubernetesFeed, prompt_of
from promptgroup_router.feed.prompt_routes import RouteSource
from promptgroup_router.feed.publish import Publisher
from support.fakeengine import until
from support.fakekube import FakeKube, fake_kube
from support.tables import SYSTEM, group, revision, slot, table
from support.wire import run

REF = PromptRef("ConfigMap", "prompt")
NAMED = revision(known=False, prompt_from=REF)


@pytest.fixture(autouse=True)
def quick(monkeypatch):
    monkeypatch.setattr(kubernetes_feed, "FIRST_BACKOFF", 0.02)
    monkeypatch.setattr(kubernetes_feed, "LAST_BACKOFF", 0.1)
    monkeypatch.setattr(kubernetes_feed, "GATHER_SECONDS", 0.005)


class Case:
    def __init__(self, kube: FakeKube, *namespaces: str, start: RoutingTable | None = None) -> None:
        self.kube, self.state = kube, router_state()
        publisher = Publisher(self.state, asyncio.get_running_loop().time, None)
        self.feed = KubernetesFeed(KubeApi(kube.server(*namespaces)), namespaces, publisher, start)

    def names(self) -> list[str]:
        return [f"{each.namespace}/{each.name}" for each in self.state.index.table.groups]

    async def shows(self, *names: str) -> None:
        await until(lambda: self.names() == list(names), f"{names}, not {self.names()}")

    def prompts(self) -> list[object]:
        return [revision.prompt for group in self.state.index.table.groups for revision in group.revisions]


def following(tmp_path, test, *namespaces: str, start: RoutingTable | None = None) -> None:
    async def check():
        async with fake_kube(tmp_path) as kube:
            case = Case(kube, *(namespaces or ("chat",)), start=start)
            task = asyncio.ensure_future(case.feed.run())
            try:
                await test(case, kube)
            finally:
                task.cancel()
                with contextlib.suppress(asyncio.CancelledError):
                    await task

    run(check())


def test_the_table_follows_the_routes(tmp_path):
    async def check(case: Case, kube: FakeKube):
        await kube.watched()
        assert case.state.loaded
        kube.put(group("a"))
        await case.shows("chat/a")
        kube.put(group("b"))
        await case.shows("chat/a", "chat/b")
        kube.delete("chat", "a")
        await case.shows("chat/b")

    following(tmp_path, check)


def test_a_route_that_cannot_be_served_is_nobody_elses_fault(tmp_path, caplog):
    async def check(case: Case, kube: FakeKube):
        await kube.watched(2)
        kube.put(group("a", namespace="x"))
        await case.shows("x/a")
        kube.put(group("bad", revision(slots=(slot(1 << 32, address="10.0.0.1:8000"),)), namespace="y"))
        await until(lambda: case.state.metrics.table_errors.values.get(("kubernetes",)), "the refusal")
        kube.put(group("b", namespace="x"))
        await case.shows("x/a", "x/b")
        (refused,) = (each.fields["problem"] for each in caplog.records if "problem" in each.fields)
        assert "y/bad: revisions[0].slots[0]: slot is 4294967296" in refused

    following(tmp_path, check, "x", "y")


def test_every_served_namespace_is_followed_and_no_other(tmp_path):
    async def check(case: Case, kube: FakeKube):
        await kube.watched(2)
        for namespace in ("x", "y", "z"):
            kube.put(group("a", namespace=namespace))
        await case.shows("x/a", "y/a")
        assert not any("/z/" in path for path in kube.seen)

    following(tmp_path, check, "x", "y")


def test_a_watch_that_ends_goes_on_from_the_last_version_it_told(tmp_path):
    async def check(case: Case, kube: FakeKube):
        await kube.watched()
        kube.put(group("a"))
        await case.shows("chat/a")
        kube.bookmark("chat")
        version = kube.version
        kube.end_watches_at_once = True
        # a bookmark changes no table: the next watch shows that it was read
        for _, writer in list(kube.watches):
            writer.write(b"0\r\n\r\n")
        await until(lambda: f"resourceVersion={version}" in kube.seen[-1], "a watch from there")
        kube.end_watches_at_once = False
        assert sum("?limit=" in path for path in kube.seen) == 1

    following(tmp_path, check)


@pytest.mark.parametrize("how", ["cut", "expired"])
def test_what_was_missed_without_a_watch_is_listed(tmp_path, how):
    async def check(case: Case, kube: FakeKube):
        await kube.watched()
        kube.put(group("a"))
        await case.shows("chat/a")
        kube.expired = how == "expired"
        kube.status = 500
        kube.cut_watches()
        await until(lambda: not kube.watches, "the watch to end")
        kube.put(group("b"))
        kube.delete("chat", "a")
        kube.status = 0
        await case.shows("chat/b")

    following(tmp_path, check)


@pytest.mark.parametrize("how", ["event", "status"])
def test_a_version_that_the_server_has_forgotten_is_no_error(tmp_path, how):
    async def check(case: Case, kube: FakeKube):
        await kube.watched()
        kube.expired, kube.watch_status = how == "event", 410 if how == "status" else 0
        kube.end_watches_at_once = True
        for _, writer in list(kube.watches):
            writer.write(b"0\r\n\r\n")
        await until(lambda: sum("?limit=" in path for path in kube.seen) == 2, "a second list")
        kube.end_watches_at_once = False
        await kube.watched()
        assert case.state.metrics.table_errors.values == {}

    following(tmp_path, check)


def test_without_an_api_server_the_last_good_table_serves(tmp_path):
    async def check(case: Case, kube: FakeKube):
        await kube.watched()
        kube.put(group("a"))
        await case.shows("chat/a")
        kube.status = 500
        kube.cut_watches()
        errors = case.state.metrics.table_errors
        await until(lambda: errors.values.get(("kubernetes",), 0) >= 3, "some failures")
        assert case.names() == ["chat/a"]

    following(tmp_path, check)


def test_the_table_grows_old_while_a_namespace_is_not_heard_from(tmp_path):
    async def check(case: Case, kube: FakeKube):
        await kube.watched()
        kube.put(group("a"))
        await case.shows("chat/a")
        kube.status = 500
        kube.cut_watches()
        asked = len(kube.seen)
        await until(lambda: len(kube.seen) > asked + 2, "tries that failed")
        confirmed = case.state.confirmed
        asked = len(kube.seen)
        await until(lambda: len(kube.seen) > asked + 2, "more of them")
        assert case.state.confirmed == confirmed
        kube.status = 0
        await until(lambda: case.state.confirmed > confirmed, "the same table, confirmed")

    following(tmp_path, check)


def test_a_restart_without_an_api_server_serves_the_copy_and_then_what_is(tmp_path):
    async def check(case: Case, kube: FakeKube):
        kube.status = 500
        await until(lambda: case.state.loaded, "the copy")
        assert case.names() == ["chat/kept"]
        kube.put(group("new"))
        kube.status = 0
        await case.shows("chat/new")

    following(tmp_path, check, start=table(group("kept")))


def test_one_namespace_that_is_refused_does_not_keep_the_others_waiting(tmp_path):
    async def check(case: Case, kube: FakeKube):
        kube.refused = "bad"
        kube.put(group("a"))
        await case.shows("chat/a")
        assert case.state.loaded

    following(tmp_path, check, "bad", "chat")


def test_the_first_table_waits_for_a_namespace_that_is_late(tmp_path):
    async def check(case: Case, kube: FakeKube):
        kube.late["y"] = asyncio.Event()
        for namespace in ("x", "y"):
            kube.put(group("a", namespace=namespace))
        await until(lambda: case.feed._tried == {"x"}, "one namespace")
        await kube.watched()
        kube.put(group("b", namespace="x"))
        await until(lambda: len(case.feed._routes.table().groups) == 2, "a route more")
        assert not case.state.loaded
        kube.late["y"].set()
        await case.shows("x/a", "x/b", "y/a")

    following(tmp_path, check, "x", "y")


def test_nothing_is_served_before_a_namespace_was_listed(tmp_path):
    async def check(case: Case, kube: FakeKube):
        kube.status = 403
        errors = case.state.metrics.table_errors
        await until(lambda: errors.values.get(("kubernetes",), 0) >= 2, "some failures")
        assert not case.state.loaded
        kube.status = 0
        await until(lambda: case.state.loaded, "a table")

    following(tmp_path, check)


def test_a_route_that_cannot_be_read_keeps_its_last_good_value(tmp_path, caplog):
    async def check(case: Case, kube: FakeKube):
        await kube.watched()
        kube.put(group("a"))
        await case.shows("chat/a")
        kube.put_spec("chat", "a", {"format": 7})
        kube.put(group("b"))
        await case.shows("chat/a", "chat/b")
        assert case.state.metrics.table_errors.values["kubernetes",] == 1
        assert "format is 7" in str([each.fields for each in caplog.records if hasattr(each, "fields")])

    following(tmp_path, check)


def test_prompts_are_fetched_once_and_verified(tmp_path):
    async def check(case: Case, kube: FakeKube):
        kube.put_data("chat", "configmaps", "prompt", {"system": SYSTEM})
        await kube.watched()
        kube.put(group("a", NAMED))
        await until(lambda: case.prompts() == [revision().prompt], "the prompt")
        kube.put(group("a", NAMED, model="other"))
        await until(lambda: case.state.index.table.groups[0].model == "other", "the change")
        assert case.prompts() == [revision().prompt]
        assert sum("configmaps" in path for path in kube.seen) == 1

    following(tmp_path, check)


def test_a_prompt_that_cannot_be_read_is_tried_again_while_its_group_serves(tmp_path):
    async def check(case: Case, kube: FakeKube):
        kube.put(group("a", NAMED))
        await case.shows("chat/a")
        await until(lambda: sum("configmaps" in path for path in kube.seen) >= 2, "a second try")
        kube.put_data("chat", "configmaps", "prompt", {"system": "not the text"})
        await until(lambda: sum("configmaps" in path for path in kube.seen) >= 4, "further tries")
        assert case.prompts() == [None]
        kube.put_data("chat", "configmaps", "prompt", {"system": SYSTEM})
        await until(lambda: case.prompts() == [revision().prompt], "the prompt")

    following(tmp_path, check)


def test_a_prompt_that_no_route_names_any_more_is_given_up(tmp_path):
    async def check(case: Case, kube: FakeKube):
        kube.put(group("a", NAMED))
        await until(lambda: case.feed._fetching, "a fetch")
        await kube.watched()
        kube.delete("chat", "a")
        await until(lambda: not case.feed._fetching, "the fetch to end")

    following(tmp_path, check)


def test_a_secret_is_decoded():
    tools = '[{"name":"é"}]'
    each = revision(tools=tools)
    source = RouteSource("chat", PromptRef("Secret", "s"), each.fingerprint)
    data = {key: base64.b64encode(value.encode()).decode() for key, value in (("system", SYSTEM), ("tools", tools))}
    assert prompt_of(source, {"data": data}) == each.prompt


@pytest.mark.parametrize(
    "found",
    [
        None,
        {},
        *({"data": data} for data in (None, {}, {"other": "x"}, {"system": "!"}, {"system": "/w=="}, {"system": 5})),
    ],
)
def test_what_holds_no_prompt_is_refused_without_its_text(found):
    with pytest.raises(TableError) as caught:
        prompt_of(RouteSource("chat", PromptRef("Secret", "s"), NAMED.fingerprint), found)
    assert "/w==" not in str(caught.value)
