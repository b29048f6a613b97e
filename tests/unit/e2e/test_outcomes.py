import json
from dataclasses import replace

import pytest

from harness.outcomes import Outcome, Seen, p99, parse, seen, unharmed

ONE, OTHER, NEW = "ns/g/11111111/0", "ns/g/11111111/1", "ns/g/22222222/0"


def outcome(session=0, served=ONE, *, error="", cached=900, streamed=False):
    return Outcome(session, 0, streamed, 0 if error else 200, "" if error else served, error, 0.1, 1000, cached)


def account(outcomes, since=0, needed=None):
    found = Seen()
    seen(found, outcomes, since, needed or {"11111111": 800, "22222222": 800})
    return found


def test_a_log_is_read_whatever_the_runtime_puts_before_its_lines():
    line = json.dumps(
        {"session": 1, "turn": 2, "streamed": True, "status": 200, "served": ONE, "error": "", "seconds": 1}
    )
    assert parse(f"2026-11-21T18:00:00.1Z stdout F {line}\nTraceback\n{line}\n") == [
        Outcome(1, 2, True, 200, ONE, "", 1)
    ] * 2  # fmt: skip


def test_requests_before_the_block_say_where_sessions_were_and_count_for_nothing_else():
    found = account([outcome(served=ONE, cached=0), outcome(served=OTHER)], since=1)
    assert (found.requests, found.cold, found.moved(), dict(found.served)) == (1, [], 1, {OTHER: 1})


def test_a_failed_request_moves_no_session():
    found = account([outcome(served=ONE), outcome(error="status 503"), outcome(served=ONE)])
    assert (found.moved(), len(found.failed), found.cut) == (0, 1, [])


def test_whole_answers_and_streams_fail_apart():
    found = account([outcome(error="cut", streamed=True), outcome(error="status 502")])
    assert (len(found.cut), len(found.failed)) == (1, 1)


def test_a_request_that_met_less_than_the_prefix_was_cold():
    found = account([outcome(cached=799), outcome(cached=800), outcome(served="ns/g/33333333/0", cached=0)])
    assert [each.split()[:2] for each in found.cold] == [[ONE, "799"], ["ns/g/33333333/0", "0"]]


def test_moves_are_told_apart_by_where_they_lead():
    found = account([outcome(served=ONE), outcome(served=NEW), outcome(1, ONE), outcome(1, OTHER)])
    assert (found.moved(), found.moved(besides=[OTHER]), found.changed_revision()) == (2, 1, 1)


@pytest.mark.parametrize("harm", [outcome(error="status 503"), outcome(error="cut", streamed=True), outcome(cached=0)])
def test_unharmed_is_every_request_whole_and_warm(harm):
    assert unharmed(account([outcome()]))
    with pytest.raises(AssertionError):
        unharmed(account([outcome(), harm]))


def test_nothing_seen_proves_nothing():
    with pytest.raises(AssertionError):
        unharmed(account([]))


def test_the_99th_percentile_is_of_requests_that_were_answered():
    served = [replace(outcome(), seconds=float(number)) for number in range(200)]
    assert p99([*served, replace(outcome(error="status 502"), seconds=1e6)]) == 198
