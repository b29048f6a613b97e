import json
import time

from promptgroup_contract.table import RoutingTable
from support.asks import answer
from support.tables import SYSTEM, group, table
from support.wire import chat, connected, get, post, routing, run


def test_health_readiness_metrics_and_the_table(tmp_path):
    async def check():
        both = table(group("support"), group("younger", created="2027"))
        async with routing(tmp_path, both) as router, connected(router.admin_port) as client:
            assert (await client.ask(get("/healthz"))).body == b"ok\n"
            assert (await client.ask(get("/readyz"))).status == 200
            metrics = await client.ask(get("/metrics"))
            assert metrics.headers[b"content-type"] == b"text/plain; version=0.0.4; charset=utf-8"
            assert b'promptgroup_router_table_info{version="v1",source="file"} 1' in metrics.body
            shown = await client.ask(get("/table"))
            assert [each["name"] for each in shown.json["groups"]] == ["support", "younger"]
            assert shown.json["conflicts"][0]["keeper"] == "chat/support"
            believed = next(iter(shown.json["replicas"].values()))
            assert (believed["inFlight"], believed["waitSeconds"], believed["liveSessions"]) == (0, 0, 0)
            assert SYSTEM.encode() not in shown.body
            assert (await client.ask(get("/unmatched"))).json == {"unmatched": [], "shared": []}

    run(check())


def test_a_router_that_leaves_is_not_ready_but_alive(tmp_path):
    async def check():
        async with routing(tmp_path, table()) as router, connected(router.admin_port) as client:
            router.state.draining = True
            answer = await client.ask(get("/readyz"))
            assert (answer.status, answer.body) == (503, b"draining\n")
            assert (await client.ask(get("/healthz"))).status == 200

    run(check())


def test_a_router_without_a_table_is_not_ready(tmp_path):
    async def check():
        async with routing(tmp_path, RoutingTable()) as router, connected(router.admin_port) as client:
            router.state.loaded = False
            assert (await client.ask(get("/readyz"))).status == 503

    run(check())


def test_what_the_port_does_not_serve(tmp_path):
    async def check():
        async with routing(tmp_path, table()) as router, connected(router.admin_port) as client:
            answer = await client.ask(get("/"))
            assert answer.status == 404
            assert "/metrics" in json.loads(answer.body)["error"]["message"]
            assert (await client.ask(post(b"{}", path="/metrics"))).status == 405
            asked = await client.ask(get("/explain"))
            assert (asked.status, asked.headers[b"allow"]) == (405, b"POST")

    run(check())


def test_a_request_is_explained_and_neither_counted_nor_repeated(tmp_path, caplog):
    said = "My password is hunter2"

    async def check():
        async with routing(tmp_path, table()) as router, connected(router.admin_port) as client:
            caplog.set_level("DEBUG")
            before = (await client.ask(get("/table"))).json
            body = json.dumps(chat(said))
            answer = await client.ask(post({"body": body, "headers": {"x-session-id": "7"}}, path="/explain"))
            assert answer.status == 200
            assert answer.json["session"]["source"] == "header x-session-id"
            assert answer.json["choice"] == answer.json["ring"][0]["replica"]
            assert (await client.ask(get("/table"))).json == before
            assert said.encode() not in answer.body
            assert "promptgroup_router_requests_total{" not in (await client.ask(get("/metrics"))).body.decode()
            assert (await client.ask(post({"body": 1}, path="/explain"))).status == 400

    run(check())
    assert said not in caplog.text


def test_a_purge_is_remembered_over_a_restart(tmp_path):
    kept = answer(1, born=time.time())  # noqa: TID251 - the clock that machines share
    copy = tmp_path / "copy.json"

    async def check():
        async with routing(tmp_path, table(), cache_file=copy) as router, connected(router.admin_port) as client:
            asked = post({"group": kept.group}, path="/responses/purge")
            assert (await client.ask(asked)).json == {"purged": 0}
        async with routing(tmp_path, table(), cache_file=copy) as router:
            assert router.answers._purges.forbid_kept(kept)
            assert not router.answers._purges.forbid(kept.key, "other/group", kept.revision, kept.born)

    run(check())
