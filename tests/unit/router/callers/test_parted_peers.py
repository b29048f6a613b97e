"""What is remembered of peers that fell silent, for how long, and what of their charges counts."""

import pytest

from promptgroup_router.callers.account import SpendReport
from promptgroup_router.callers.limiter import Limiter
from promptgroup_router.callers.parted_peers import REMEMBERED_SECONDS, Parted, PartedPeers, of_last, of_last_minute

REPORT = SpendReport(7, 1, 100, 1, 100, 100, 0)


def test_a_report_is_given_back_once():
    peers = PartedPeers()
    peers.part(1, {7: REPORT}, 5.0)
    assert peers.rejoin(2, 7) is None
    assert peers.rejoin(1, 8) is None
    assert peers.rejoin(1, 7) == Parted(REPORT, 5.0)
    assert peers.rejoin(1, 7) is None


def test_a_peer_is_remembered_from_its_last_silence_on():
    peers = PartedPeers()
    peers.part(1, {7: REPORT, 8: REPORT}, 0.0)
    peers.part(2, {7: REPORT}, 1.0)
    peers.part(1, {7: REPORT}, 2.0)
    peers.forget(REMEMBERED_SECONDS + 1.5)
    assert peers.rejoin(2, 7) is None
    assert peers.rejoin(1, 8) == Parted(REPORT, 0.0)
    peers.forget(REMEMBERED_SECONDS + 2.5)
    assert peers.rejoin(1, 7) is None


def test_restarts_of_peers_leave_nothing_for_ever():
    limiter, now = Limiter(), 1000.0
    for restart in range(400):
        now += 30.0
        limiter.export(now)
        limiter.merge(10**9 + restart, [REPORT._replace(account=account) for account in range(3)], now)
        limiter.drop_peer(10**9 + restart, now)
        assert sum(len(account.peers) for account in limiter._accounts.values()) == 0
        assert len(limiter._parted._peers) <= REMEMBERED_SECONDS / 30.0 + 1
    limiter.export(now + REMEMBERED_SECONDS + 1.0)
    assert not limiter._parted._peers
    assert not limiter._parted._silent


def test_what_was_charged_evenly_is_divided_by_time():
    assert of_last(60.0, 3600, 3600.0) == 60
    assert of_last(60.0, 500, 5.0) == 500
    assert of_last(0.0, 500, 0.0) == 500
    assert of_last(0.0, 500, 5.0) == of_last(-1.0, 500, 5.0) == 0, "none of it is later than its end"


@pytest.mark.parametrize(
    ("charged", "silence", "told", "known", "counted"),
    [
        (500, 10.0, 900, 400, 500),
        (6000, 3600.0, 100, 100, 100),
        (6000, 3600.0, 5000, 4000, 1000),
        (6000, 3600.0, 50, 0, 50),
        (-600, 3600.0, 500, 0, -10),
        (-600, 10.0, 500, 0, -600),
    ],
    ids=["short", "evenly", "late", "no more than it says", "corrected long ago", "corrected now"],
)
def test_the_part_of_the_last_minute(charged, silence, told, known, counted):
    assert of_last_minute(charged, silence, told, known) == counted
