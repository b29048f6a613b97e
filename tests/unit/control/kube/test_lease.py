from dataclasses import replace
from datetime import UTC, datetime

import pytest

from promptgroup_operator.kube import lease
from promptgroup_operator.kube.lease import DURATION, RENEW_DEADLINE, LeaseAction, LeaseObservation, LeaseRecord

WALL = datetime(2026, 11, 21, 12, 0, 0, 123456, tzinfo=UTC)
OTHER = LeaseRecord("b", DURATION, "then", "then", 3, "17")

CASES = {
    "one that is not there is created": (None, 0.0, LeaseAction.CREATE),
    "one of nobody's is taken at once": (replace(OTHER, holder=""), 0.0, LeaseAction.TAKE),
    "one's own is renewed": (replace(OTHER, holder="a"), 3.0, LeaseAction.RENEW),
    "one's own that has run out is renewed, if nobody took it": (replace(OTHER, holder="a"), 100.0, LeaseAction.RENEW),
    "another's is waited for": (OTHER, DURATION - 0.1, LeaseAction.WAIT),
    "another's that was seen unchanged for its duration is taken": (OTHER, DURATION, LeaseAction.TAKE),
    "the duration is the record's": (replace(OTHER, seconds=60.0), 59.0, LeaseAction.WAIT),
}


@pytest.mark.parametrize("case", CASES)
def test_a_lease(case):
    record, age, expected = CASES[case]
    assert lease.decide("a", LeaseObservation(record, 1000.0), 1000.0 + age) is expected


def test_an_unchanged_record_keeps_the_time_at_which_it_was_first_seen():
    first = lease.observe(None, OTHER, 10.0)
    assert lease.observe(first, OTHER, 20.0) == LeaseObservation(OTHER, 10.0)
    assert lease.observe(first, replace(OTHER, version="18"), 20.0).since == 20.0


def test_times_of_other_clocks_decide_nothing():
    """The holder's clock is a day behind, or ahead: only what was seen here counts."""
    for renewed in ("2026-11-20T12:00:00.000000Z", "2026-11-22T12:00:00.000000Z"):
        assert lease.decide("a", LeaseObservation(replace(OTHER, renewed=renewed), 0.0), 1.0) is LeaseAction.WAIT


def test_a_holder_stops_before_another_may_take():
    assert RENEW_DEADLINE + lease.REQUEST < DURATION


def test_taking_counts_a_transition_and_renewing_does_not():
    taken = lease.renewed_record("a", OTHER, WALL)
    assert taken == LeaseRecord("a", DURATION, "2026-11-21T12:00:00.123456Z", "2026-11-21T12:00:00.123456Z", 4, "17")
    assert lease.renewed_record("a", replace(taken, acquired="then"), WALL) == replace(taken, acquired="then")
    assert lease.renewed_record("a", None, WALL).transitions == 0


def test_a_released_lease_is_nobodys():
    released = lease.released_record(OTHER, WALL)
    assert lease.decide("a", LeaseObservation(released, 0.0), 0.0) is LeaseAction.TAKE
    assert released.version == OTHER.version


def test_a_record_outlives_its_encoding():
    record = lease.renewed_record("a", OTHER, WALL)
    raw = lease.encode(record, "system", "operator")
    assert raw["metadata"] == {"name": "operator", "namespace": "system", "resourceVersion": "17"}
    assert lease.decode(raw) == record


def test_a_new_lease_names_no_version():
    assert (
        "resourceVersion" not in lease.encode(lease.renewed_record("a", None, WALL), "system", "operator")["metadata"]
    )


def test_a_lease_that_another_tool_left_half_empty_is_nobodys():
    assert lease.decode({"metadata": {"resourceVersion": "1"}}).holder == ""
