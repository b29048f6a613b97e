import gc
import tracemalloc
from itertools import product

import pytest

from promptgroup_operator.load.router_metrics import MAX_LABEL, PAGE_MEMORY, RevisionGauges, parse
from promptgroup_operator.rollout.analysis import quantile
from promptgroup_operator.world.samples import Flow, Histogram, SlotUse, Stratum, StratumKey
from promptgroup_operator.world.snapshot import Key
from promptgroup_router.base.metrics import CACHED_BUCKETS, FIRST_TOKEN_BUCKETS, Metrics

KEY = Key("chat", "support")

TEXT = """\
# HELP REVISION_requests_total Requests
REVISION_requests_total{group="chat/support",LABELS,streamed="true",outcome="ok"} 7
REVISION_requests_total{group="chat/support",revision="aa",turn="first",how="content",streamed="true",outcome="ok"} 2
REVISION_requests_total{group="chat/support",revision="aa",turn="later",how="name",streamed="true",outcome="failed"} 1
REVISION_requests_total{group="chat/supporter",LABELS,streamed="true",outcome="ok"} 99
REVISION_first_token_seconds_bucket{group="chat/support",LABELS,streamed="true",le="0.1"} 3
REVISION_first_token_seconds_bucket{group="chat/support",LABELS,streamed="true",le="1"} 7
REVISION_first_token_seconds_bucket{group="chat/support",LABELS,streamed="true",le="+Inf"} 7
REVISION_first_token_seconds_bucket{group="chat/support",LABELS,streamed="false",le="0.1"} 0
REVISION_first_token_seconds_bucket{group="chat/support",LABELS,streamed="false",le="1"} 1
REVISION_first_token_seconds_bucket{group="chat/support",LABELS,streamed="false",le="+Inf"} 2
REVISION_first_token_seconds_sum{group="chat/support",LABELS,streamed="true"} 4.5
REVISION_cached_ratio_bucket{group="chat/support",LABELS,streamed="true",le="0"} 1
REVISION_cached_ratio_bucket{group="chat/support",LABELS,streamed="true",le="+Inf"} 1
promptgroup_router_requests_total{group="chat/support",code="200"} 10
garbage {
""".replace("REVISION_", "promptgroup_router_revision_").replace("LABELS", 'revision="aa",turn="first",how="name"')


def everybody(key):
    return True


def test_a_group_is_read_out_of_a_routers_metrics():
    pages = parse(TEXT, everybody)
    assert set(pages) == {KEY, Key("chat", "supporter")}
    found = pages[KEY]
    assert found.flows == {"aa": Flow(10, 8)}
    streamed = Histogram((0.1, 1.0), (3.0, 4.0, 0.0))
    assert found.samples == {
        "aa": {
            StratumKey(): Stratum(7, 0, streamed, Histogram((0.0,), (1.0, 0.0))),
            StratumKey(how="content"): Stratum(2),
            StratumKey("later"): Stratum(1, 1),
            StratumKey(streamed=False): Stratum(),  # the time of a whole answer is not that of its first token
        }
    }
    assert parse("", everybody) == parse("\0" * 99, everybody) == {}


def test_what_a_router_counts_is_what_is_read():
    metrics = Metrics()
    for labels in (("first", "name", "true", "ok"), ("later", "content", "false", "failed")):
        metrics.revision_requests.add("chat/support", "aa", *labels)
    metrics.revision_first_token.observe("chat/support", "aa", "first", "name", "true", value=0.2)
    metrics.revision_cached.observe("chat/support", "aa", "first", "name", "true", value=0.95)
    found = parse(metrics.text(), everybody)[KEY]
    assert found.flows == {"aa": Flow(2, 1)}
    assert found.samples["aa"][StratumKey("later", "content", streamed=False)] == Stratum(1, 1)
    first = found.samples["aa"][StratumKey()]
    assert (first.first_token.bounds, first.cached.bounds) == (FIRST_TOKEN_BUCKETS, CACHED_BUCKETS)
    assert first.first_token.total == first.cached.total == 1
    assert 0.19 < quantile(first.first_token, 0.5) < 0.23
    assert quantile(first.cached, 0.5) == 0.95


def test_what_a_router_has_at_the_moment_is_read():
    metrics = Metrics()
    metrics.revision_prompt_tokens.add("chat/support", "aa", amount=700)
    metrics.revision_sessions.replace({("chat/support", "aa"): 3})
    metrics.revision_session_tokens.replace({("chat/support", "aa"): 9000})
    metrics.revision_waiting.replace({("chat/support", "aa"): 2})
    metrics.near_miss.add("chat/support", amount=5)
    metrics.near_miss_offset.replace({("chat/support",): 120})
    found = parse(metrics.text(), everybody)[KEY]
    assert found.stocks == {"aa": RevisionGauges(sessions=3, session_tokens=9000, waiting=2, prompt_tokens=700)}
    assert (found.near_misses, found.near_miss_offset) == (5, 120)


def test_what_was_found_is_added_up_over_the_slots_of_a_revision():
    metrics = Metrics()
    metrics.revision_answer_tokens.add("chat/support", "aa", amount=20)
    for slot, found in (("0", 90), ("1", 30)):
        metrics.slot_prompt_tokens.add("chat/support", "aa", slot, "", amount=100)
        metrics.slot_cached_tokens.add("chat/support", "aa", slot, "", amount=found)
    stocks = parse(metrics.text(), everybody)[KEY].stocks
    assert stocks == {"aa": RevisionGauges(answer_tokens=20, looked_up_tokens=200, cached_tokens=120)}


GAUGES = {
    "revision_sessions": "sessions",
    "revision_session_tokens": "session_tokens",
    "revision_waiting": "waiting",
}


@pytest.mark.parametrize("told", GAUGES)
def test_what_a_router_does_not_tell_of_a_revision_is_nothing(told):
    metrics = Metrics()
    getattr(metrics, told).replace({("chat/support", "aa"): 3})
    assert parse(metrics.text(), everybody)[KEY].stocks == {"aa": RevisionGauges(**{GAUGES[told]: 3})}


def test_what_was_evicted_is_read_by_its_distance():
    metrics = Metrics()
    metrics.revision_evicted.add("chat/support", "aa", "4", amount=700)
    metrics.revision_evicted.add("chat/support", "aa", "more", amount=30)
    metrics.revision_evicted.add("chat/support", "aa", "never heard of", amount=1)
    found = parse(metrics.text(), everybody)[KEY]
    assert found.evicted == {"aa": {"4": 700, "more": 30}}
    assert found.stocks == {}


def test_what_each_slot_works_on_and_holds_is_read():
    metrics = Metrics()
    metrics.in_flight.replace({("chat/support", "aa", "0"): 2, ("chat/support", "aa", "3"): 0})
    metrics.slot_sessions.replace({("chat/support", "aa", "0"): 5, ("chat/support", "bb", "0"): 1})
    metrics.slot_session_tokens.replace({("chat/support", "aa", "0"): 9000, ("chat/support", "bb", "0"): 70})
    found = parse(metrics.text(), everybody)[KEY]
    assert found.slots == {"aa": {0: SlotUse(5, 9000, 2), 3: SlotUse()}, "bb": {0: SlotUse(1, 70, 0)}}
    assert found.stocks == {}


def test_a_slot_that_is_no_number_is_passed_over():
    line = 'promptgroup_router_inflight{group="chat/support",revision="aa",slot="%s"} 1\n'
    page = "".join(line % slot for slot in ("-1", "1.5", "", "x", "12345", "\u0663", " 1"))
    assert parse(page, everybody)[KEY].slots == {}


REQUESTS = 'promptgroup_router_revision_requests_total{group="%s",revision="%s",turn="%s",how="name"} 1\n'
TOKENS = 'promptgroup_router_revision_own_tokens_total{group="chat/support",revision="aa",turn="%s",how="name"} 1\n'
BUCKET = 'promptgroup_router_revision_first_token_seconds_bucket{group="chat/support",revision="%s",le="%s"} 1\n'
LONG = {
    "groups": lambda number: REQUESTS % (f"chat/{number}", "aa", "first"),
    "groups that are nobody's": lambda number: REQUESTS % (number, "aa", "first"),
    "revisions": lambda number: REQUESTS % ("chat/support", number, "first"),
    "turns": lambda number: REQUESTS % ("chat/support", "aa", number),
    "turns of tokens": lambda number: TOKENS % number,
    "buckets": lambda number: BUCKET % ("aa", number),
    "histograms of one bucket": lambda number: BUCKET % (number, number),
    "slots": lambda number: f'promptgroup_router_inflight{{group="a/b",revision="{number}",slot="1"}} 1\n',
    "gauges": lambda number: f'promptgroup_router_revision_sessions{{group="a/b",revision="{number}"}} 1\n',
}


def measured(make):
    """Return what is made, and the bytes of memory that it takes, and that making it took."""
    gc.collect()
    tracemalloc.start()
    try:
        made = make()
        return made, *tracemalloc.get_traced_memory()
    finally:
        tracemalloc.stop()


@pytest.mark.heavy
@pytest.mark.parametrize("shape", LONG)
def test_a_page_takes_no_more_memory_than_is_allowed_whatever_it_repeats(shape):
    page = "".join(map(LONG[shape], range(40_000)))
    found, kept, peak = measured(lambda: parse(page, everybody, PAGE_MEMORY // 4))
    assert kept <= PAGE_MEMORY // 2, "the bounds of buckets are counted when they are known"
    assert peak <= 2 * PAGE_MEMORY
    told = sum(each.memory for each in found.values())
    assert kept <= told + 256 * sum(len(slots) for each in found.values() for slots in each.slots.values()) + 100_000


def test_a_page_of_thirty_busy_revisions_is_read_whole():
    metrics = Metrics()
    revisions = [f"{number:08x}" for number in range(30)]
    for revision in revisions:
        for labels in product(("first", "later", "other"), ("name", "content"), ("true", "false")):
            metrics.revision_requests.add("chat/support", revision, *labels, "ok", amount=12345)
            if labels[2] == "true":
                metrics.revision_first_token.observe("chat/support", revision, *labels, value=0.3)
                metrics.revision_own_tokens.add("chat/support", revision, *labels, amount=12345)
                metrics.revision_shared_tokens.add("chat/support", revision, *labels, amount=2345)
            metrics.revision_cached.observe("chat/support", revision, *labels, value=0.3)
    found = parse(metrics.text(), everybody)[KEY]
    assert {len(found.samples[each]) for each in revisions} == {12}
    assert {(each.own, each.shared) for each in found.samples[revisions[0]].values()} == {(12345, 2345), (0, 0)}
    assert found.memory < PAGE_MEMORY * 3 // 4


def test_labels_that_no_router_writes_are_passed_over():
    page = REQUESTS % ("chat/support", "a" * (MAX_LABEL + 1), "first") + REQUESTS % ("chat/support", "aa", "first")
    assert set(parse(page, everybody)[KEY].flows) == {"aa"}


def test_requests_that_found_no_replica_are_read():
    page = """\
promptgroup_router_wake_requests_total{group="chat/support"} 3
promptgroup_router_wake_last_request_timestamp_seconds{group="chat/support"} 1762171200.5
promptgroup_router_wake_waiting{group="chat/support"} 1
"""
    found = parse(page, everybody)[KEY]
    assert (found.wake_requests, found.wake_at) == (3, 1762171200.5)


def test_they_stand_before_what_may_be_too_much_to_read():
    metrics = Metrics()
    metrics.revision_requests.add("chat/support", "aa", "first", "name", "true", "ok")
    metrics.wake_requests.add("chat/support")
    assert parse(metrics.text(), everybody, memory=1)[KEY].wake_requests == 1
