import contextlib

import pytest

from promptgroup_contract.caller_rules import CallerLimits
from promptgroup_router.base.errors import ApiError
from promptgroup_router.callers.limiter import SETTLE_SECONDS, Limiter
from promptgroup_router.peers.catch_up import COPY_DATAGRAMS
from promptgroup_router.peers.datagram import (
    MAX_BYTES,
    PREFIXES,
    RECORDS,
    Datagram,
    DatagramKind,
    Refusal,
    decode,
    encode,
    seal_key,
)
from promptgroup_router.peers.members import MAX_PEERS
from promptgroup_router.peers.protocol import (
    DATAGRAMS_A_TICK,
    HELLO_SECONDS,
    MAX_CANDIDATES,
    PREFIX_DATAGRAMS_A_TICK,
    WAITING_PLACEMENTS,
    WAITING_PREFIXES,
)
from promptgroup_router.policy.gossip import PrefixReport
from support.peers import KEY, TICK, Net, Node, load, placement


def kinds(net: Net) -> list[DatagramKind]:
    """Of the last step's datagrams."""
    return [decode(data, KEY, net.now).kind for data, _, _ in net.sent]


def met(*nodes: Node) -> Net:
    """A network whose routers know each other, caught up."""
    net = Net(*nodes)
    net.step(2.5)
    assert all(node.live() == len(nodes) - 1 for node in nodes)
    return net


def test_routers_find_each_other_and_tell_what_they_do_within_a_tick():
    one, two, three = nodes = [Node(each) for each in (1, 2, 3)]
    net = met(*nodes)
    one.listener.place(placement(7, turn=3))
    one.listener.loads = [load(5, written=10)]
    net.step()
    for node in (two, three):
        assert node.listener.locations == {7: placement(7, turn=3)}
        assert node.listener.peers == {1: {5: load(5, written=10)}}
    assert one.listener.peers == {}


def test_prefixes_are_told_within_a_tick_and_a_flood_of_them_in_bounded_datagrams():
    one, two = Node(1), Node(2)
    net = met(one, two)
    one.listener.prefixes = told = [PrefixReport(number, 5, 256) for number in range(3 * PREFIXES)]
    net.step()
    assert two.listener.heard == told
    one.listener.prefixes = [PrefixReport(number, 5, 256) for number in range(2 * WAITING_PREFIXES)]
    net.step()
    assert kinds(net).count(DatagramKind.PREFIX) == PREFIX_DATAGRAMS_A_TICK
    net.step(WAITING_PREFIXES / PREFIXES * TICK)
    assert len(two.listener.heard) == len(told) + WAITING_PREFIXES


def test_nothing_is_sent_but_heartbeats_when_nothing_happens():
    net = met(Node(1), Node(2))
    sent = []
    for _ in range(100):
        net.step()
        sent += kinds(net)
    assert set(sent) == {DatagramKind.HELLO}
    # each to both addresses, its own among them, once a second
    assert len(sent) == pytest.approx(100 * TICK / HELLO_SECONDS * 4, abs=4)


def test_loads_expire_in_each_tick_whether_any_peer_is_heard_or_not():
    one = Node(1)
    for now in (1.0, 1.05):
        one.peers.tick(now, now)
        assert one.listener.expired == now


def test_nothing_but_heartbeats_goes_where_nobody_was_heard():
    one = Node(1)
    net = Net(one)
    one.peers.aim([("10.0.0.9", port) for port in range(4)])
    one.listener.place(placement(1))
    one.listener.loads = [load(1)]
    net.step()
    assert kinds(net) == [DatagramKind.HELLO] * 4
    net.step()
    assert net.sent == []
    two = net.add(Node(2))
    net.step(1.2)
    # what was told to nobody is not told later: it is in the copy
    assert two.metrics.peer_notes.values["received",] == 1
    assert two.listener.locations == {1: placement(1)}


def test_a_router_that_is_not_looked_for_is_heard_and_answered():
    one, two = Node(1), Node(2)
    net = Net(one, two)
    one.peers.aim([])
    net.step(1.2)
    assert (one.live(), two.live()) == (1, 1)


def test_a_router_that_falls_silent_is_forgotten_with_its_load():
    one, two = Node(1), Node(2)
    net = met(one, two)
    one.listener.loads = [load(5)]
    net.step()
    assert two.listener.peers == {1: {5: load(5)}}
    net.remove(one)
    net.step(4.0)
    assert two.listener.forgotten == []
    net.step(1.5)
    assert (two.listener.forgotten, two.listener.peers, two.live()) == ([1], {}, 0)


def test_a_router_that_starts_copies_the_records_of_one_that_runs():
    records = [placement(each, turn=2) for each in range(2 * COPY_DATAGRAMS * RECORDS)]
    one, two = Node(1, *records), Node(2)
    net = met(one, two)
    three = net.add(Node(3))
    biggest = 0
    for _ in range(60):
        net.step()
        biggest = max(biggest, sum(1 for kind in kinds(net) if kind is DatagramKind.COPY))
    assert three.listener.locations == {each.session: each for each in records}
    assert three.metrics.peer_notes.values["received",] == len(records)
    assert 1 < biggest <= COPY_DATAGRAMS


def test_another_is_asked_when_the_first_goes_away():
    records = [placement(each) for each in range(3 * COPY_DATAGRAMS * RECORDS)]
    one, two = Node(1, *records), Node(2, *records)
    net = met(one, two)
    three = net.add(Node(3))
    while len(three.listener.locations) < RECORDS:
        net.step()
    asked = next(node for node in (one, two) if node.metrics.peer_notes.values.get(("sent",), 0) > 0)
    net.remove(asked)
    net.step(4.0)
    assert len(three.listener.locations) == len(records)


def test_loss_and_reordering_do_no_lasting_harm():
    nodes = [Node(each) for each in (1, 2, 3)]
    net = Net(*nodes, loss=0.05, delay=3, seed=5)
    net.step(3.0)
    sessions, told = 200, 0
    for turn in range(1, 11):
        for session in range(sessions):
            nodes[(session + turn) % 3].listener.place(placement(session, turn))
            told += 1
            if session % 10 == 0:
                for index, node in enumerate(nodes):
                    node.listener.loads = [load(1, written=10 * told + index)]
                net.step()
                assert all(node.live() == 2 for node in nodes)
    for node in nodes:
        node.listener.loads = []
    net.step(1.0)
    for node in nodes:
        newest = sum(1 for each in node.listener.locations.values() if each.turn == 10)
        # a third were its own; of the others 5 % of the datagrams of the last turn are lost
        assert newest >= 0.85 * sessions
        assert len(node.listener.locations) == sessions
        heard = [each.written for each in node.listener.loads_in_order]
        by_sender = [[each for each in heard if each % 10 == index] for index in range(3)]
        assert all(each == sorted(each) for each in by_sender)


def test_loads_never_go_back_in_time():
    one, two = Node(1), Node(2)
    met(one, two)
    later = encode(Datagram(DatagramKind.TICK, 1, 1000, 100.0, [placement(8)], [load(1, written=2)]), KEY)
    earlier = encode(Datagram(DatagramKind.TICK, 1, 999, 100.0, [placement(7)], [load(1, written=1)]), KEY)
    for data in (later, earlier):
        assert two.peers.receive(data, one.address, 102.6, 102.6) is None
    assert two.listener.peers[1] == {1: load(1, written=2)}
    assert set(two.listener.locations) == {7, 8}
    assert two.peers.receive(earlier, one.address, 102.6, 102.6) is Refusal.REPLAYED
    assert two.dropped("replayed") == 1


def test_a_recorded_cry_for_help_is_not_answered():
    one, two = Node(1, placement(1)), Node(2)
    net = met(one, two)
    asked = encode(Datagram(DatagramKind.ASK, 2, 1000, net.now, [], []), KEY)
    one.peers.receive(asked, ("10.9.9.9", 1), net.now, net.now)
    net.step()
    one.peers.receive(asked, ("10.9.9.9", 1), net.now, net.now)
    late = encode(Datagram(DatagramKind.ASK, 2, 999, net.now, [], []), KEY)
    one.peers.receive(late, ("10.9.9.9", 1), net.now, net.now)
    net.step()
    assert DatagramKind.COPY not in kinds(net)


def test_without_a_key_nothing_is_sent_and_nothing_heard():
    one, two = Node(1, placement(1)), Node(2)
    net = met(one, two)
    two.peers.key = None
    two.listener.place(placement(9))
    received = two.peers.receive(b"anything", one.address, net.now, net.now)
    assert (received, two.dropped("no_key")) == (Refusal.NO_KEY, 1)
    net.step(6.0)
    assert (one.live(), two.live()) == (0, 0)
    assert all(source == one.address for _, source, _ in net.sent)
    assert 9 not in one.listener.locations
    two.peers.key = KEY
    net.step(1.2)
    assert (one.live(), two.live()) == (1, 1)


def test_routers_with_another_key_are_name_collisions():
    one, two = Node(1), Node(2)
    two.peers.key = seal_key(b"fedcba9876543210")
    net = Net(one, two)
    net.step(3.0)
    assert (one.live(), two.live()) == (0, 0)
    assert one.dropped("forged") > 0


def test_a_tick_is_bounded_and_what_is_left_follows():
    one, two = Node(1), Node(2)
    net = met(one, two)
    one.listener.place(*(placement(each) for each in range(2000)))
    one.listener.loads = [load(each) for each in range(2000)]
    net.step()
    assert 0 < len(net.sent) <= DATAGRAMS_A_TICK + 2
    assert all(len(data) <= MAX_BYTES for data, _, _ in net.sent)
    heard = len(two.listener.peers[1]), len(two.listener.locations)
    assert heard == (DATAGRAMS_A_TICK // 2 * RECORDS,) * 2
    # the newest figures, and every load in its turn
    one.listener.loads = [load(each, written=1) for each in range(2000)]
    net.step(8 * TICK)
    assert len(two.listener.peers[1]) == len(two.listener.locations) == 2000
    assert two.listener.peers[1][1999].written == 1


def test_of_too_many_notes_the_oldest_go_and_are_counted():
    one, two = Node(1), Node(2)
    net = met(one, two)
    one.listener.place(*(placement(each) for each in range(WAITING_PLACEMENTS + 10)))
    net.step()
    assert one.metrics.peer_notes_dropped.values[()] == 10
    assert min(two.listener.locations) == 10


def test_heartbeats_go_to_a_bounded_number_of_addresses():
    one = Node(1)
    one.peers.aim([("10.0.0.9", port) for port in range(2 * MAX_CANDIDATES)])
    assert len(one.peers.tick(1.0, 1.0)) == MAX_CANDIDATES


def test_one_router_too_many_is_dropped():
    one = Node(1)
    for sender in range(2, MAX_PEERS + 2):
        one.peers.receive(encode(Datagram(DatagramKind.HELLO, sender, 1, 0.0), KEY), ("10.0.0.2", sender), 0.0, 0.0)
    late = encode(Datagram(DatagramKind.HELLO, 9999, 1, 0.0), KEY)
    assert one.peers.receive(late, ("10.0.0.2", 1), 0.0, 0.0) is Refusal.CROWD


def test_what_callers_have_used_reaches_every_router_and_one_that_starts():
    limits = CallerLimits(requests_per_minute=10)
    one, other, limiter = Limiter(), Limiter(), Limiter()
    net = Net(Node(1, limiter=one), Node(2, limiter=other))
    net.step(3.0)
    one.admit("a/b", "c", limits, prompt=0, longest=0, now=net.now)
    net.step(1.0)
    assert other.routers == 2
    mine = other.admit("a/b", "c", limits, prompt=0, longest=0, now=net.now)
    assert dict(other.headers(mine, net.now))[b"x-ratelimit-remaining-requests"] == b"8"
    limiter.began = net.now
    net.add(Node(3, limiter=limiter))
    net.step(3.0)
    theirs = limiter.admit("a/b", "c", limits, prompt=0, longest=0, now=net.now)
    assert dict(limiter.headers(theirs, net.now))[b"x-ratelimit-remaining-requests"] == b"7"


def test_a_share_of_a_limit_is_used_again_once_all_were_heard_a_second_later_and_nothing_is_sent_at_rest():
    one, other, limits = Limiter(), Limiter(), CallerLimits(requests_per_minute=20)
    net = Net(Node(1, limiter=one), Node(2, limiter=other))
    net.step(2.5)

    def used() -> int:
        count = 0
        for _ in range(20):
            with contextlib.suppress(ApiError):
                one.admit("a/b", "c", limits, prompt=0, longest=0, now=net.now)
                count += 1
        return count

    assert used() == 10
    net.step(SETTLE_SECONDS / 2)
    assert used() == 0, "the other may not know yet"
    net.step(SETTLE_SECONDS + HELLO_SECONDS)
    assert used() == 5
    net.step(1.0)  # each has told, and was answered
    sent = []
    for _ in range(20):
        net.step()
        sent += kinds(net)
    assert set(sent) == {DatagramKind.HELLO}
