from promptgroup_router.peers.catch_up import ATTEMPTS, COPY_DATAGRAMS, PATIENCE_SECONDS, SnapshotClient, SnapshotServer
from promptgroup_router.peers.datagram import RECORDS
from promptgroup_router.peers.members import Peer
from support.peers import placement


def peers(*senders: int) -> list[Peer]:
    return [Peer(sender, ("10.0.0.1", sender), sequence=100 * sender, heard=0.0) for sender in senders]


def asked_peer(asking: SnapshotClient, live: list[Peer], now: float) -> int | None:
    peer = asking.next_peer(live, now)
    return None if peer is None else peer.sender


def test_one_is_asked_the_one_that_has_been_there_longest():
    asking = SnapshotClient()
    assert asked_peer(asking, [], 0.0) is None
    assert asked_peer(asking, peers(1, 3, 2), 0.0) == 3
    assert asked_peer(asking, peers(1, 3, 2), PATIENCE_SECONDS - 0.1) is None


def test_another_is_asked_when_nothing_comes():
    asking, live = SnapshotClient(), peers(1, 2)
    assert [asked_peer(asking, live, at) for at in (0.0, 1.0, 2.0, 3.0, 4.0)] == [2, None, 1, None, 2]


def test_every_part_renews_the_patience_and_the_last_ends_it():
    asking, live = SnapshotClient(), peers(1, 2)
    asked_peer(asking, live, 0.0)
    for at in (1.5, 3.0, 4.5):
        asking.receive(2, [placement(1)], at)
        assert asked_peer(asking, live, at + 1.4) is None
    asking.receive(2, [], 6.0)
    assert asked_peer(asking, live, 1000.0) is None


def test_only_the_one_that_was_asked_last_ends_it():
    asking, live = SnapshotClient(), peers(1, 2)
    asked_peer(asking, live, 0.0)
    asked_peer(asking, live, 2.0)
    asking.receive(2, [], 2.1)
    assert asked_peer(asking, live, 4.0) == 2


def test_it_is_given_up_in_the_end():
    asking, live = SnapshotClient(), peers(1)
    asked = [asked_peer(asking, live, PATIENCE_SECONDS * step) for step in range(2 * ATTEMPTS)]
    assert asked == [1] * ATTEMPTS + [None] * ATTEMPTS


def test_a_copy_is_sent_in_parts_and_ended_by_an_empty_one():
    serving = SnapshotServer()
    records = [placement(each) for each in range(RECORDS * COPY_DATAGRAMS + 5)]
    serving.start(7, iter(records))
    first, second, third = (list(serving.next_parts()) for _ in range(3))
    assert [len(placements) for _, placements in first] == [RECORDS] * COPY_DATAGRAMS
    assert second == [(7, records[-5:]), (7, [])]
    assert third == []
    assert [each for _, placements in first + second for each in placements] == records


def test_all_that_ask_share_what_a_tick_allows():
    serving = SnapshotServer()
    for sender in range(3):
        serving.start(sender, iter([placement(each) for each in range(10 * RECORDS)]))
    parts = [sender for sender, _ in serving.next_parts()]
    assert len(parts) == COPY_DATAGRAMS
    assert {parts.count(sender) for sender in range(3)} == {2, 3}


def test_with_more_that_ask_than_a_tick_has_parts_everybody_gets_all_in_the_end():
    serving = SnapshotServer()
    for sender in range(2 * COPY_DATAGRAMS):
        serving.start(sender, iter([placement(sender)]))
    got = [part for _ in range(4) for part in serving.next_parts()]
    assert {sender for sender, placements in got if placements} == set(range(2 * COPY_DATAGRAMS))


def test_asking_again_does_not_begin_again_and_a_peer_that_is_gone_is_sent_nothing():
    serving = SnapshotServer()
    serving.start(7, iter([placement(1)]))
    serving.start(7, iter([placement(2)]))
    assert list(serving.next_parts()) == [(7, [placement(1)]), (7, [])]
    serving.start(7, iter([placement(2)]))
    serving.stop(7)
    serving.stop(8)
    assert list(serving.next_parts()) == []
