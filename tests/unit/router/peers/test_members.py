from promptgroup_router.peers.members import (
    MAX_PEERS,
    REMEMBERED_SECONDS,
    SILENT_SECONDS,
    WINDOW,
    Arrival,
    Membership,
)

HERE, THERE = ("10.0.0.1", 9094), ("10.0.0.2", 9095)


def test_a_router_that_is_heard_is_live_until_it_falls_silent():
    members = Membership()
    assert members.receive(7, 1, HERE, 0.0) is Arrival.NEWEST
    assert [(peer.sender, peer.address) for peer in members.live()] == [(7, HERE)]
    assert members.expire(SILENT_SECONDS) == []
    assert members.receive(7, 2, HERE, 4.0) is Arrival.NEWEST
    assert members.expire(SILENT_SECONDS + 1) == []
    assert members.expire(SILENT_SECONDS + 4.1) == [7]
    assert members.live() == []
    assert members.expire(SILENT_SECONDS + 4.2) == []


def test_data_goes_to_where_the_newest_datagram_came_from():
    members = Membership()
    members.receive(7, 5, HERE, 0.0)
    assert members.receive(7, 3, THERE, 1.0) is Arrival.LATE
    assert members.live()[0].address == HERE
    assert members.receive(7, 6, THERE, 1.0) is Arrival.NEWEST
    assert members.live()[0].address == THERE


def test_each_sequence_number_counts_once():
    members = Membership()
    members.receive(7, 10, HERE, 0.0)
    arrivals = [members.receive(7, each, HERE, 0.0) for each in (12, 11, 11, 12, 10, 9, 13, 9)]
    newest, late, replayed = Arrival.NEWEST, Arrival.LATE, Arrival.REPLAYED
    assert arrivals == [newest, late, replayed, replayed, replayed, late, newest, replayed]


def test_what_is_too_far_behind_to_be_known_counts_as_seen():
    members = Membership()
    members.receive(7, 10, HERE, 0.0)
    members.receive(7, 10 + WINDOW, HERE, 0.0)
    assert members.receive(7, 11, HERE, 0.0) is Arrival.LATE
    assert members.receive(7, 10, HERE, 0.0) is Arrival.REPLAYED
    assert members.receive(7, 9, HERE, 0.0) is Arrival.REPLAYED
    members.receive(7, 10 + 5 * WINDOW, HERE, 0.0)
    assert members.receive(7, 9 + 5 * WINDOW, HERE, 0.0) is Arrival.LATE


def test_recorded_datagrams_do_not_bring_a_silent_router_back():
    members = Membership()
    members.receive(7, 10, HERE, 0.0)
    members.expire(SILENT_SECONDS + 1)
    assert members.receive(7, 9, THERE, 7.0) is Arrival.LATE
    assert members.receive(7, 10, THERE, 7.0) is Arrival.REPLAYED
    assert members.live() == []
    assert members.receive(7, 11, THERE, 8.0) is Arrival.NEWEST
    assert [peer.sender for peer in members.live()] == [7]
    members.expire(8.0 + REMEMBERED_SECONDS + 1)
    # by then the check of the clock refuses it
    assert members.receive(7, 10, HERE, 70.0) is Arrival.NEWEST


def test_the_number_of_routers_is_bounded_and_the_dead_make_room():
    members = Membership()
    for sender in range(MAX_PEERS):
        members.receive(sender, 1, HERE, 0.0)
    assert members.receive(MAX_PEERS, 1, HERE, 1.0) is Arrival.CROWD
    assert members.receive(0, 2, HERE, 1.0) is Arrival.NEWEST
    assert len(members.expire(REMEMBERED_SECONDS + 0.5)) == MAX_PEERS
    assert members.receive(MAX_PEERS, 1, HERE, 61.0) is Arrival.NEWEST
