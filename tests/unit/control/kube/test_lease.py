from dataclasses import replace
from datetime import UTC, datetime

import pytest

from promptgroup_operator.kube import lease
from promptgroup_operator.kube.lease import DURATION, RENEW_DEADLINE, LeaseRecord

WALL = datetime(2026, 11, 21, 12, 0, 0, 123456, tzinfo=UTC)
OTHER = LeaseRecord(
    {
        "holderIdentity": "b",
        "leaseDurationSeconds": int(DURATION),
        "acquireTime": "then",
        "renewTime": "then",
        "leaseTransitions": 3,
    },
    "17",
)


def other(**fields):
    return replace(OTHER, spec={**OTHER.spec, **fields})


CASES = {
    "one that is not there is created": (None, 0.0, True),
    "one of nobody's is taken at once": (other(holderIdentity=""), 0.0, True),
    "one's own is renewed": (other(holderIdentity="a"), 3.0, True),
    "one's own that has run out is renewed, if nobody took it": (other(holderIdentity="a"), 100.0, True),
    "another's is waited for": (OTHER, DURATION - 0.1, False),
    "another's that was seen unchanged for its duration is taken": (OTHER, DURATION, True),
    "the duration is the record's": (other(leaseDurationSeconds=60), 59.0, False),
}


@pytest.mark.parametrize("case", CASES)
def test_a_lease(case):
    record, age, expected = CASES[case]
    assert lease.is_free("a", record, age) is expected


def test_times_of_other_clocks_decide_nothing():
    """The holder's clock is a day behind, or ahead: only what was seen here counts."""
    for renewed in ("2026-11-20T12:00:00.000000Z", "2026-11-22T12:00:00.000000Z"):
        assert lease.is_free("a", other(renewTime=renewed), 1.0) is False


def test_a_holder_stops_before_another_may_take():
    assert RENEW_DEADLINE + lease.REQUEST < DURATION


def test_taking_counts_a_transition_and_renewing_does_not():
    taken = lease.renewed_record("a", OTHER, WALL)
    now = "2026-11-21T12:00:00.123456Z"
    assert taken == other(holderIdentity="a", acquireTime=now, renewTime=now, leaseTransitions=4)
    earlier = replace(taken, spec={**taken.spec, "acquireTime": "then", "renewTime": "then"})
    assert lease.renewed_record("a", earlier, WALL) == replace(taken, spec={**taken.spec, "acquireTime": "then"})
    assert lease.renewed_record("a", None, WALL).spec["leaseTransitions"] == 0


def test_a_released_lease_is_nobodys():
    released = lease.released_record(OTHER, WALL)
    assert lease.is_free("a", released, 0.0) is True
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
