"""What frames of HTTP/2 make a picker compute for their bytes, beside what a gateway's honest requests do."""

import asyncio
import json
from itertools import chain, islice

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from promptgroup_picker.extproc.gateway_call import PickerState
from promptgroup_picker.extproc.processing import Processing
from promptgroup_picker.health import HealthCheck
from promptgroup_picker.http2 import budget
from promptgroup_picker.http2.frames import ErrorCode, FrameReader, FrameType
from promptgroup_picker.http2.listener import GrpcListener
from promptgroup_router.decision.composition import router_state
from promptgroup_router.proxy.body_budget import BodyBudget
from support.grpcclient import PROCESS
from support.http2floods import CHECK, FLOODS, Peer, flood, honest
from support.wire import chat, table_of

MIB = 2**20
CHAT = json.dumps(chat(system="You answer in one sentence. " * 30)).encode()
LARGEST_SHARE = 0.8
"""Most CPU that a MiB of any frames may take, as a part of what a MiB of honest requests takes. It is 0.01 to 0.3: what
is above a connection's credit is not read. Without that references into the table take 10 times as much."""


class Port:
    """A picker's port for gateways, in memory, whose time stands still until `later`."""

    def __init__(self) -> None:
        self.now = 100.0
        state = router_state()
        state.install(table_of("10.0.0.1:8000", "10.0.0.2:8000"), "file", 0.0)
        picker = PickerState(state, BodyBudget(2**26), lambda: self.now)
        self.listener = GrpcListener(
            lambda path, stream: (
                Processing(picker, stream) if path == PROCESS else HealthCheck(state, stream) if path == CHECK else None
            ),
            lambda: self.now,
            max_message=2**22,
            max_held=2**30,
        )

    def later(self) -> None:
        self.now += 1
        self.listener.tick(self.now)


def cost(data) -> float:
    async def measured() -> float:
        return (await flood(Port().listener, data, MIB))[1]

    return asyncio.run(measured())


@pytest.fixture(scope="module")
def honest_cost() -> float:
    return min(cost(honest(CHAT)) for _ in range(2))


def test_honest_requests_are_all_read(honest_cost):
    async def check():
        peer, _ = await flood(Port().listener, honest(CHAT), MIB)
        assert peer.read >= MIB

    asyncio.run(check())
    assert honest_cost > 0


@pytest.mark.parametrize("kind", FLOODS)
def test_no_frames_cost_more_for_their_bytes_than_honest_requests(kind, honest_cost):
    if cost(FLOODS[kind]()) > LARGEST_SHARE * honest_cost:  # a busy machine's caches are cold now and then
        assert min(cost(FLOODS[kind]()) for _ in range(3)) <= LARGEST_SHARE * honest_cost


@settings(deadline=None, max_examples=10)
@given(st.lists(st.tuples(st.sampled_from(sorted(FLOODS)), st.integers(1, 300)), min_size=1))
def test_no_mixture_of_them_is_read_beyond_its_credit(parts):
    async def check():
        kinds = (islice(FLOODS[kind](), most) for kind, most in parts)
        peer, _ = await flood(Port().listener, chain.from_iterable(kinds), 8 * MIB)
        assert peer.pipe.closed or peer.connection.budget.owed <= budget.CREDIT + 20 * budget.TURN

    asyncio.run(check())


def test_a_gateway_with_thousands_of_calls_owes_next_to_nothing_though_clients_leave():
    async def check():
        peer, _ = await flood(Port().listener, honest(CHAT, leave=5), 4 * MIB)
        assert peer.read >= 4 * MIB
        assert peer.connection.budget.owed < budget.CREDIT / 10

    asyncio.run(check())


@pytest.mark.parametrize("kind", ["references into the table", "no method", "fields in Huffman's code", "empty DATA"])
def test_others_have_their_turn_beside_a_hundred_floods(kind):
    async def check():
        port = Port()
        floods = [Peer(port.listener, FLOODS[kind]()) for _ in range(100)]
        gateway, (request, *_) = Peer(port.listener), islice(honest(CHAT, events=0), 1)
        data = floods[0].next_read()
        for each in floods:
            each.send(data)
        sent = len(gateway.pipe.sent)
        gateway.send(request)
        turns = 0
        while len(gateway.pipe.sent) == sent:
            before = sum(each.connection.budget.owed for each in floods)
            await asyncio.sleep(0)  # where health checks of the admin port have their turn as well
            turns += 1
            assert sum(each.connection.budget.owed for each in floods) - before < budget.ROUND + 11 * budget.TURN
        assert turns <= 100

    asyncio.run(check())


@pytest.mark.parametrize("kind", ["references into the table", "no method"])
def test_a_gateway_has_its_turn_at_once_beside_a_hundred_connections_of_one_other_address(kind):
    async def check():
        port = Port()
        floods = [Peer(port.listener, FLOODS[kind](), "127.0.0.2") for _ in range(100)]
        gateway, (request, *_) = Peer(port.listener), islice(honest(CHAT, events=0), 1)
        data = floods[0].next_read()
        for each in floods:
            each.send(data)
        sent, before = len(gateway.pipe.sent), sum(each.connection.budget.owed for each in floods)
        gateway.send(request)
        for _ in range(2):
            await asyncio.sleep(0)
        assert len(gateway.pipe.sent) > sent
        assert sum(each.connection.budget.owed for each in floods) - before < 2 * budget.ROUND + 11 * budget.TURN

    asyncio.run(check())


@pytest.mark.parametrize("kind", ["references into the table", "no method", "streams that are reset"])
def test_new_connections_in_place_of_others_have_no_new_credit(kind):
    async def check():
        port, spent = Port(), 0.0
        for _ in range(20):
            before = port.listener.networks["127.0.0.1"].owed if port.listener.networks else 0.0
            peer, _ = await flood(port.listener, FLOODS[kind](), MIB)
            spent += port.listener.networks["127.0.0.1"].owed - before
            peer.leave()
        assert spent < 2 * budget.CREDIT + 20 * 16 * budget.TURN
        for _ in range(20):
            port.later()
        assert not port.listener.networks

    asyncio.run(check())


@pytest.mark.parametrize("kind", FLOODS)
def test_a_peer_that_goes_on_with_them_is_told_to_be_calm_and_closed(kind, monkeypatch):
    monkeypatch.setattr(budget, "CREDIT", 5000.0)
    monkeypatch.setattr(budget, "FORGIVEN_A_SECOND", 5000.0)

    async def check():
        port = Port()
        peer, _ = await flood(port.listener, FLOODS[kind](), MIB)
        for _ in range(budget.CALM_TICKS + 1):
            port.later()
            while not peer.pipe.closed and (peer.pipe.reading or peer.connection.ready):
                if peer.pipe.reading:
                    peer.send(peer.next_read())
                await asyncio.sleep(0)
        assert peer.pipe.closed
        reader = FrameReader()
        reader.begun = True
        *_, last = reader.feed(b"".join(peer.pipe.sent))
        wrong = kind == "many sizes of the table"  # which no list of fields may have
        code = ErrorCode.COMPRESSION_ERROR if wrong else ErrorCode.ENHANCE_YOUR_CALM
        assert (last.type, int.from_bytes(last.payload[4:], "big")) == (FrameType.GOAWAY, code)

    asyncio.run(check())
