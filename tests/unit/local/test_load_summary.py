from promptgroup_local.load.client import Outcome
from promptgroup_local.load.counters import Measured
from promptgroup_local.load.reference import Exchange
from promptgroup_local.load.summary import moved, quantile, summarise

MEASURED = Measured(hit_rate=0.4, imbalance=1.2, cold=0, requests={"a": 1})


def outcome(session: str = "s", *, served_by: str = "", url: str = "u", error: str = "", ttft: float = 1) -> Outcome:
    exchange = Exchange([{"role": "user", "content": "hi" * 100}], "there")
    return Outcome(session, 0, "code", url, 200, error, ttft, ttft + 1, served_by, True, exchange)


def test_quantiles_are_nearest_rank() -> None:
    hundred = [float(number) for number in range(1, 101)]
    assert [quantile(hundred, share) for share in (0, 0.5, 0.99, 1)] == [1, 50, 99, 100]
    assert quantile([7], 0.99) == 7
    assert quantile([], 0.5) is None


def test_failed_requests_are_counted_and_their_times_are_not() -> None:
    row = summarise("run", [outcome(ttft=3), outcome(ttft=1), outcome(ttft=99, error="status 503")], MEASURED)
    assert (row.requests, row.failed, row.failures, row.ttft_p50, row.ttft_p99, row.e2e_p50) == (
        3,
        {"status 503": 1},
        1,
        1,
        3,
        2,
    )


def test_the_measured_hit_rate_is_set_against_the_possible_one() -> None:
    row = summarise("run", [outcome(), outcome()], MEASURED)
    assert row.possible is not None
    assert row.of_possible == 0.4 / row.possible
    assert summarise("run", [outcome(error="x")], MEASURED).of_possible is None


def test_a_session_moved_when_its_next_turn_is_served_by_another_replica() -> None:
    before = [outcome("a", served_by="1"), outcome("a", served_by="2"), outcome("b", served_by="1")]
    after = [outcome("a", served_by="2"), outcome("a", served_by="9"), outcome("b", served_by="2")]
    assert moved(before, after) == (1, 2)


def test_only_sessions_answered_both_times_count() -> None:
    before = [outcome("a", url="1"), outcome("b", url="1"), outcome("c", error="x")]
    after = [outcome("a", url="2"), outcome("b", error="x"), outcome("c"), outcome("d")]
    assert moved(before, after) == (1, 1)
