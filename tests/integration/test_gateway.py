"""The picker behind a real Envoy: requests and answers arrive whole, at the replicas that the router would choose."""

import asyncio
import contextlib
from dataclasses import replace

import pytest

from promptgroup_contract.caller_rules import CallerRules
from promptgroup_contract.table import SlotState
from promptgroup_local.ports import free_ports
from promptgroup_picker.extproc.gateway_fields import OWN
from promptgroup_picker.server import Picker
from promptgroup_router.feed import table_file
from support import routerprocess
from support.engineheaders import FROM_ENGINES, JUDGED
from support.envoy import needs_envoy
from support.fakeengine import FakeEngine, engines, until
from support.fakekube import fake_kube
from support.forwarder import forwarding
from support.gateway import USAGE, at_rest, behind, counted, gateway, picking, settings_of
from support.tables import group, revision, slot, table
from support.wire import Answer, ask, chat, connected, get, post, routing, run, started, table_of

pytestmark = [pytest.mark.integration, needs_envoy]


async def mirror(call) -> None:
    call.answer(call.request.body)


def session(number: int) -> str:
    return f"X-Session-Id: user-{number}"


class Clients:
    """Sessions that ask one turn after the other."""

    def __init__(self) -> None:
        self.statuses: list[int] = []
        """Of all answers, in the order of their ends."""

    async def ask(self, port: int, number: int, stop: asyncio.Event) -> None:
        while not stop.is_set():
            self.statuses.append((await ask(port, post(chat(), session(number)))).status)

    async def served(self, count: int) -> None:
        """Wait for so many more answers."""
        goal = len(self.statuses) + count
        await until(lambda: len(self.statuses) >= goal, f"{count} more answers", 20.0)


@contextlib.asynccontextmanager
async def asking(*ports: int):
    """Sixteen clients of these ports, until the block ends; all their answers have come then."""
    found, stop = Clients(), asyncio.Event()
    async with asyncio.TaskGroup() as tasks:
        for number in range(16):
            tasks.create_task(found.ask(ports[number % len(ports)], number, stop))
        try:
            yield found
        finally:
            stop.set()


@contextlib.asynccontextmanager
async def pickers(tmp_path, addresses: list[str], count: int):
    """Pickers in processes of their own."""
    path = tmp_path / "picker-table.json"
    table_file.write(path, table_of(*addresses))
    flags = ["--table", str(path), "--health-port", "0", "--plaintext", "--drain-delay", "4"]
    async with contextlib.AsyncExitStack() as stack:
        each = [routerprocess.started(*flags, program="promptgroup_picker") for _ in range(count)]
        yield await asyncio.gather(*map(stack.enter_async_context, each))


def heard(found: list[FakeEngine]) -> list[int]:
    return [len(each.requests) for each in found]


def test_a_session_goes_to_the_same_slot_through_gateway_and_router(tmp_path):
    async def check():
        async with behind(tmp_path) as (envoy, picker, found):
            served: dict[int, str] = {}
            for number in range(20):
                answer = await ask(envoy.strict, post(chat(), session(number)))
                assert (answer.status, answer.body) == (200, USAGE)
                assert answer.headers[b"x-promptgroup-revision"]
                served[number] = answer.served_by
            assert len(set(served.values())) == 2
            async with routing(tmp_path, picker.core.state.index.table) as router:
                for number, where in served.items():
                    assert (await ask(router.port, post(chat(), session(number)))).served_by == where
            for port in (envoy.lenient, envoy.held):
                for number in range(8):
                    assert (await ask(port, post(chat(), session(number)))).served_by == served[number]
            assert all(b"x-promptgroup-warmup" not in each.head.fields for one in found for each in one.requests)

    run(check())


def test_usage_of_whole_and_streamed_answers_closes_the_books(tmp_path):
    async def check():
        async with behind(tmp_path) as (envoy, picker, _):
            for port in (envoy.strict, envoy.held):
                for stream in (False, True):
                    answer = await ask(port, post(chat(stream=stream), session(1)))
                    assert answer.status == 200
                    assert (b"[DONE]" in answer.body) is stream
            text = picker.core.exposition()
            assert 'promptgroup_router_prompt_tokens_total{group="chat/support"} 160' in text
            assert 'promptgroup_router_cached_tokens_total{group="chat/support"} 120' in text
            await at_rest(picker)

    run(check())


@pytest.mark.parametrize("size", [1_200_000, 6_000_000])
def test_large_bodies_arrive_whole(tmp_path, size):
    async def check():
        async with behind(tmp_path, mirror) as (envoy, picker, found):
            body = post(chat("x" * size))
            for port in (envoy.strict, envoy.held):
                answer = await ask(port, body)
                assert answer.status == 200
                assert answer.served_by  # not past the picker, where the gateway fails open
                assert len(answer.body) > size
                assert answer.json["messages"][1]["content"] == "x" * size
            assert sum(heard(found)) == 2
            assert picker._large_bodies._reader.pid is not None  # which read them
            await at_rest(picker)

    run(check())


@pytest.mark.parametrize("size", [10, 400_000])
def test_a_client_that_names_the_group_gets_its_prompt_put_in_front(tmp_path, size):
    async def check():
        async with behind(tmp_path, mirror) as (envoy, _, _):
            for port in (envoy.strict, envoy.held):
                body = chat("x" * size, model="support", system="")
                answer = await ask(port, post(body, "X-Promptgroup-Warmup: 1"))
                assert answer.served_by
                assert answer.json["model"] == "llama"
                assert answer.json["messages"][0]["content"].startswith("You are the support assistant")
                assert answer.json["messages"][1]["content"] == "x" * size

    run(check())


@pytest.mark.parametrize("size", [1_100_000, 5_000_000])
def test_a_body_above_the_limit_is_refused_and_does_not_pass_a_gateway_that_fails_open(tmp_path, size):
    async def check():
        async with behind(tmp_path, max_body_bytes=2**20, body_memory_bytes=2**24) as (envoy, picker, found):
            for port in (envoy.strict, envoy.lenient, envoy.held):
                answer = await ask(port, post(chat("x" * size)))
                assert (answer.status, answer.json["error"]["code"]) == (413, "body_too_large")
                assert (await ask(port, post(chat()))).served_by
            assert sum(heard(found)) == 3
            await at_rest(picker)

    run(check())


def test_what_the_picker_answers_itself(tmp_path):
    async def check():
        async with behind(tmp_path) as (envoy, _, found):
            answer = await ask(envoy.strict, get("/v1/models"))
            assert (answer.status, answer.json["object"]) == (200, "list")
            answer = await ask(envoy.strict, post(chat(model="gpt")))
            assert (answer.status, answer.json["error"]["code"]) == (404, "model_not_found")
            answer = await ask(envoy.strict, post(b"{"))
            assert answer.status == 400
            answer = await ask(envoy.strict, get("/reset_prefix_cache"))
            assert answer.status == 404
            assert heard(found) == [0, 0]

    run(check())


def test_nobody_ready_is_503(tmp_path):
    async def check():
        nobody = table(group("support", revision(slots=(slot(0, SlotState.DRAINING),))))
        async with picking(tmp_path, nobody) as picker, gateway(tmp_path, [picker.port], []) as envoy:
            answer = await ask(envoy.strict, post(chat()))
            assert (answer.status, answer.json["error"]["code"]) == (503, "no_replica")
            assert answer.headers[b"retry-after"] == b"5"

    run(check())


def test_the_gateways_subset_is_kept(tmp_path):
    async def check():
        async with behind(tmp_path, subset=lambda known: known[:1]) as (envoy, _, found):
            for number in range(6):
                assert (await ask(envoy.strict, post(chat(), session(number)))).status == 200
            assert heard(found) == [6, 0]
        async with behind(tmp_path, subset=lambda _: ["10.9.9.9:1"]) as (envoy, _, found):
            assert (await ask(envoy.strict, post(chat()))).status == 503

    run(check())


def test_a_replica_that_is_gone_is_passed_over_and_ejected(tmp_path):
    async def check():
        async with engines(1, counted) as found:
            dead = f"127.0.0.1:{free_ports(1)[0]}"
            addresses = [found[0].address, dead]
            async with (
                picking(tmp_path, table_of(*addresses), endpoints=2) as picker,
                gateway(tmp_path, [picker.port], addresses) as envoy,
            ):
                for number in range(12):
                    answer = await ask(envoy.lenient, post(chat(), session(number)))
                    assert answer.status == 200
                    assert answer.served_by.endswith("/0")
                assert "promptgroup_router_ejections_total 1" in picker.core.exposition()
                await at_rest(picker)

    run(check())


def test_a_client_that_leaves_frees_its_replica(tmp_path):
    async def check():
        async def slow(call) -> None:
            call.begin_stream()
            call.chunk(b'data: {"choices":[{"delta":{"content":"a"}}]}\n\n')
            await call.client_gone()

        async with behind(tmp_path, slow) as (envoy, picker, found):
            async with connected(envoy.strict) as client:
                client.send(post(chat(stream=True)))
                await client.reader.read(100)
                assert picker.core.state.balancer.placed.loads
            await until(lambda: not picker.core.state.balancer.placed.loads, "the load to be released")
            assert sum(heard(found)) == 1
            assert 'answers_cut_total{group="chat/support",by="client"} 1' in picker.core.exposition()

    run(check())


def test_without_the_picker_a_gateway_that_holds_the_body_goes_on(tmp_path):
    async def check():
        async with engines(2, counted, counted) as found:
            addresses = [each.address for each in found]
            async with picking(tmp_path, table_of(*addresses)) as picker:
                port = picker.port
                async with gateway(tmp_path, [port], addresses) as envoy:
                    assert (await ask(envoy.held, post(chat()))).status == 200
                    await picker.stop()
                    answers: list[Answer] = [await ask(envoy.held, post(chat())) for _ in range(10)]
                    assert [each.status for each in answers] == [200] * 10
                    assert (await ask(envoy.strict, post(chat()))).status == 500

    run(check())


def test_a_large_body_that_is_none_is_refused(tmp_path):
    async def check():
        async with behind(tmp_path) as (envoy, picker, found):
            for port in (envoy.strict, envoy.held):
                answer = await ask(port, post(b"[" * 300_000))
                assert answer.status == 400
            assert heard(found) == [0, 0]
            await at_rest(picker)

    run(check())


def test_tls_with_a_certificate_of_its_own(tmp_path):
    async def check():
        async with behind(tmp_path, plaintext=False) as (envoy, _, _):
            assert (await ask(envoy.strict, post(chat()))).status == 200

    run(check())


def test_a_gateway_that_shows_no_answers_still_keeps_sessions(tmp_path):
    async def check():
        async with behind(tmp_path) as (envoy, picker, found):
            for _ in range(4):
                assert (await ask(envoy.unseen, post(chat(), session(3)))).status == 200
            assert sorted(heard(found)) == [0, 4]
            await at_rest(picker)

    run(check())


def test_many_at_once(tmp_path):
    async def check():
        async with behind(tmp_path) as (envoy, picker, found):
            answers = await asyncio.gather(
                *(ask(envoy.strict, post(chat(stream=number % 2 == 0), session(number))) for number in range(200))
            )
            assert [each.status for each in answers] == [200] * 200
            assert sum(heard(found)) == 200
            await at_rest(picker)

    run(check())


def test_replicas_come_and_go_under_load(tmp_path):
    """Scaling up, a replica that is drained, one that dies: no whole answer fails, and keys move as by the router."""

    async def check():
        async with engines(3, *[counted] * 3) as stay, contextlib.AsyncExitStack() as dies:
            found = [*stay, *await dies.enter_async_context(engines(1, counted))]
            addresses = [each.address for each in found]
            before = table_of(*addresses[:3])
            async with (
                picking(tmp_path, before, endpoints=3) as picker,
                routing(tmp_path, before) as router,
                gateway(tmp_path, [picker.port], addresses) as envoy,
            ):
                async with asking(envoy.lenient) as clients:
                    await clients.served(30)
                    drained = (slot(0, SlotState.DRAINING, addresses[0]), *_ready(addresses[1:], 1))
                    moved = []
                    for slots in (_ready(addresses), drained):
                        new = table(group("support", revision(slots=tuple(slots))), version=str(len(moved)))
                        for each in (picker.core, router.core):
                            each._publisher.publish(new, "file")
                        moved.append(_moved(picker))
                        assert moved[-1] == _moved(router)
                        await clients.served(30)
                    assert 0 < moved[0] <= 1.1 / 4
                    assert found[3].requests
                    await dies.aclose()
                    await clients.served(100)
                assert set(clients.statuses) == {200}
                await at_rest(picker)
                assert "promptgroup_router_ejections_total 0" not in picker.core.exposition()

    run(check())


def test_a_picker_is_stopped_and_one_is_lost_under_load(tmp_path):
    """No request fails by SIGTERM, and those under way by SIGKILL.

    One gateway learns which pickers are ready, the other knows their Service alone and sees its connection end.
    """

    async def check():
        async with engines(2, counted, counted) as found, contextlib.AsyncExitStack() as stack:
            addresses = [each.address for each in found]
            stopped, lost, left = await stack.enter_async_context(pickers(tmp_path, addresses, 3))
            ports = [each.port for each in (stopped, lost, left)]
            service = await stack.enter_async_context(forwarding(stopped.port))
            for folder in (tmp_path / "knows-pods", tmp_path / "knows-the-service"):
                folder.mkdir()
            knows = await stack.enter_async_context(gateway(tmp_path / "knows-pods", ports, addresses, checks=True))
            sees = await stack.enter_async_context(gateway(tmp_path / "knows-the-service", [service.port], addresses))
            async with asking(knows.strict, knows.lenient, sees.strict, sees.lenient) as clients:
                await clients.served(50)
                service.target = left.port
                stopped.process.terminate()
                assert await stopped.process.wait() == 0
                await clients.served(50)
                assert set(clients.statuses) == {200}
                lost.process.kill()
                await lost.process.wait()
                await until(lambda: set(clients.statuses[-100:]) == {200}, "Envoy to leave the lost picker", 20.0)

    run(check())


def _ready(addresses, first: int = 0):
    return [slot(first + number, address=address) for number, address in enumerate(addresses)]


def _moved(server) -> float:
    return server.core.state.metrics.keys_moved.values.get(("chat/support",), 0.0)


def test_the_conformance_mode_of_the_inference_extension(tmp_path):
    async def check():
        async with engines(2, mirror, mirror) as found, fake_kube(tmp_path) as kube:
            addresses = [each.address for each in found]
            kube.put_pool("chat", "primary", *addresses)
            settings = settings_of(tmp_path, source=kube.server("chat"), conformance="primary")
            async with (
                started(Picker(settings)) as picker,
                gateway(tmp_path, [picker.port], addresses) as envoy,
            ):
                await until(lambda: picker.core.state.loaded, "the pool")
                for one, address in zip(found, addresses, strict=True):
                    wanted = f"test-epp-endpoint-selection: {address}"
                    answer = await ask(envoy.strict, post(b"ping", wanted, path="/anything"))
                    assert (answer.status, answer.body) == (200, b"ping")
                    assert answer.headers[b"x-conformance-test-served-endpoint"] == address.encode()
                    (request,) = one.requests
                    echo = f"x-conformance-test-served-endpoint:{address}"
                    assert request.head.fields[b"x-echo-set-header"] == echo.encode()
                # a request that names none is served by any; one of another pool's endpoint is not
                assert (await ask(envoy.strict, post(b"ping", path="/anything"))).status == 200
                other = "test-epp-endpoint-selection: 10.0.0.9:3000"
                assert (await ask(envoy.strict, post(b"ping", other, path="/anything"))).status == 503

    run(check())


def test_an_engine_gets_the_key_that_it_asks_for_and_none_of_the_clients(tmp_path):
    async def check():
        async with engines(1, counted) as found:
            asks = replace(slot(0, address=found[0].address), credential="keys/engine")
            served = table(group("support", revision(slots=(asks,))))
            async with (
                picking(tmp_path, served) as picker,
                gateway(tmp_path, [picker.port], [found[0].address]) as envoy,
            ):
                picker.core.state.features.authenticator.keyring.credential = lambda *_: b"secret"
                for port in (envoy.strict, envoy.held):
                    assert (await ask(port, post(chat(), "Authorization: Bearer mine"))).status == 200
                assert [each.head.fields[b"authorization"] for each in found[0].requests] == [b"Bearer secret"] * 2

    run(check())


def test_a_query_reaches_the_engine_only_where_something_may_read_it(tmp_path):
    async def check():
        async with behind(tmp_path, mirror, pass_paths=("/v1/plugin",)) as (envoy, _, found):
            for port in (envoy.strict, envoy.lenient, envoy.held, envoy.unseen):
                for path in ("/v1/chat/completions", "/v1/messages", "/v1/plugin"):
                    answer = await ask(port, post(chat(max_tokens=5), path=f"{path}?beta=true&priority=-9"))
                    assert (answer.status, answer.json["max_tokens"]) == (200, 5)
                heads = [request.head for engine in found for request in engine.requests]
                assert {each.path: each.query for each in heads} == {
                    b"/v1/chat/completions": b"",
                    b"/v1/messages": b"",
                    b"/v1/plugin": b"beta=true&priority=-9",
                }
                for engine in found:
                    engine.requests.clear()

    run(check())


@pytest.mark.parametrize(
    "match",
    [
        {"headers": [{"name": "x-pool", "string_match": {"exact": "a"}}]},
        {"query_parameters": [{"name": "pool", "string_match": {"exact": "a"}}]},
    ],
)
def test_a_route_may_match_what_engines_do_not_get(tmp_path, match):
    def matching(_port: str, manager: dict) -> None:
        (route,) = manager["route_config"]["virtual_hosts"][0]["routes"]
        route["match"] |= match

    async def check():
        async with behind(tmp_path, mirror, manage=matching) as (envoy, _, found):
            for port in (envoy.strict, envoy.lenient, envoy.held, envoy.unseen):
                answer = await ask(port, post(chat(), "X-Pool: a", path="/v1/chat/completions?pool=a"))
                assert (answer.status, answer.json["model"]) == (200, "llama")
            heads = [request.head for engine in found for request in engine.requests]
            assert not any(head.query or b"x-pool" in head.fields for head in heads)

    run(check())


def test_header_fields_pass_by_name_alone_both_ways(tmp_path):
    judged = {name for name in JUDGED if name not in {"content-length", "content-type", "traceparent", "tracestate"}}
    sent = [f"{name}: 1" for name in sorted(judged | {"x-tenant", "x-engine-of-next-year", "x-stainless-lang"})]

    async def tell(call) -> None:
        call.answer(USAGE, 200, *(f"{name}: 1" for name in (*FROM_ENGINES, "x-tenant", "retry-after")))

    async def check():
        async with engines(1, tell) as found:
            slots = (slot(0, address=found[0].address),)
            served = table(
                group("support", revision(slots=slots), callers=CallerRules(headers=frozenset(("x-tenant",))))
            )
            async with (
                picking(tmp_path, served) as picker,
                gateway(tmp_path, [picker.port], [found[0].address]) as envoy,
            ):
                for port in (envoy.strict, envoy.held):
                    answer = await ask(port, post(chat(), "Content-Type: application/json", *sent))
                    (request,) = found[0].requests
                    found[0].requests.clear()
                    got = {name.decode() for name in request.head.fields}
                    assert {"x-tenant", "accept", "user-agent", "content-type"} <= got
                    own = {each.decode() for each in OWN} | {"transfer-encoding"}
                    extra = {name for name in got if not name.startswith("x-envoy-")} - own
                    assert extra <= {name for name, each in JUDGED.items() if each.passes} | {"x-tenant"}
                    told = {name.decode() for name in answer.headers}
                    assert answer.status == 200
                    assert {"x-tenant", "retry-after", "x-promptgroup-served-by"} <= told
                    assert answer.headers.get(b"server") in (None, b"envoy")
                    assert not told & (set(FROM_ENGINES) - {"server"})

    run(check())


def test_guests_are_served_by_the_pool_of_their_host(tmp_path):
    host, guest = "You are the host's assistant.", "You are the guest's assistant."

    async def check():
        async with engines(2, counted, counted) as found:
            addresses = [each.address for each in found]
            both = tuple(slot(index, address=address) for index, address in enumerate(addresses))
            served = table(group("pool", revision(host, both)), group("returns", revision(guest, both[1:])))
            async with picking(tmp_path, served) as picker, gateway(tmp_path, [picker.port], addresses) as envoy:
                for number in range(10):
                    answer = await ask(envoy.strict, post(chat(system=guest), session(number)))
                    assert (answer.status, *place(answer)) == (200, "returns", "1")
                named = {"model": "returns", "messages": [{"role": "user", "content": "x"}]}
                answer = await ask(envoy.held, post(named))
                assert (answer.status, *place(answer)) == (200, "returns", "1")
                answers = [await ask(envoy.strict, post(chat(system=host), session(number))) for number in range(20)]
                assert {place(answer) for answer in answers} == {("pool", "0"), ("pool", "1")}

    def place(answer):
        _, name, _, index = answer.served_by.split("/")
        return name, index

    run(check())
