import random

import pytest
from opentelemetry.sdk.trace.sampling import TraceIdRatioBased

from promptgroup_router.features.tracing.sampling import Sampling
from promptgroup_router.features.tracing.tracer import DRAWN_AT_ONCE, ID_BYTES, MOST_EVENTS, EndedSpan, Tracer
from promptgroup_router.http11.trace_context import parse

LOW, HIGH, ID = (f"{number:016x}" for number in (11, 12, 13))
"""The low half of a new trace's id, the high half of those that are not sampled, and every other id."""
TRACE = "4bf92f3577b34da6a3ce929d0e0e4736"
SAMPLED, UNSAMPLED = (f"00-{TRACE}-00f067aa0ba902b7-0{flags}".encode() for flags in (1, 0))


def tracer(ratio=1.0, *, parent_based=True):
    ended: list[EndedSpan] = []
    drawn = iter([bytes.fromhex(HIGH)])

    def random(size):
        return bytes.fromhex(LOW) * (size // ID_BYTES) if size > ID_BYTES else next(drawn, bytes.fromhex(ID))

    return Tracer(Sampling(ratio, parent_based), random, ended.append, epoch=1000.0), ended


def test_a_span_of_a_clients_trace_is_its_child_and_engines_are_told_of_it():
    one, ended = tracer()
    header, span = one.begin(SAMPLED, now=1.0)
    span.note("sent", 1.5, {"slot": "0"})
    span.end("chat m", {"a": 1}, 2.0)
    [found] = ended
    assert (found.name, found.attributes, found.error) == ("chat m", {"a": 1}, "")
    assert (found.began, found.ended) == (1_001_000_000_000, 1_002_000_000_000)
    assert found.parent == parse(SAMPLED)
    assert header == f"00-{TRACE}-{ID}-01".encode()
    assert [(each.name, each.at) for each in found.events] == [("sent", 1_001_500_000_000)]


def test_a_request_without_a_trace_begins_one():
    one, _ = tracer()
    header, span = one.begin(b"", now=1.0)
    assert span.parent is None
    assert header == span.context.header() == f"00-{ID}{LOW}-{ID}-01".encode()


@pytest.mark.parametrize(
    ("given", "ratio", "header"),
    [
        (UNSAMPLED, 1.0, b""),
        (b"", 0.0, f"00-{HIGH}{LOW}-{LOW}-00".encode()),
        (b"no trace", 0.0, f"00-{HIGH}{LOW}-{LOW}-00".encode()),
    ],
    ids=["the client decided", "no client's trace", "no header of the form"],
)
def test_a_request_that_is_not_sampled_is_in_no_span_of_the_engine_either(given, ratio, header):
    one, _ = tracer(ratio)
    assert one.begin(given, now=1.0) == (header, None)


def test_where_callers_do_not_decide_the_engine_is_told_what_was_decided_here():
    one, _ = tracer(0.0, parent_based=False)
    assert one.begin(SAMPLED, now=1.0) == (f"00-{TRACE}-{ID}-00".encode(), None)
    assert one.begin(UNSAMPLED, now=1.0) == (b"", None)
    one, _ = tracer(1.0, parent_based=False)
    assert one.begin(UNSAMPLED, now=1.0)[0] == f"00-{TRACE}-{ID}-01".encode()


def test_events_are_bounded():
    one, _ = tracer()
    _, span = one.begin(b"", now=1.0)
    for _ in range(1000):
        span.note("waits", 1.0, {})
    assert len(span.events) == MOST_EVENTS


def test_no_two_requests_have_one_id():
    one = Tracer(Sampling(0.0, parent_based=True), random.Random(1).randbytes, lambda _: None)
    headers = [one.begin(b"", now=1.0)[0] for _ in range(3 * DRAWN_AT_ONCE + 1)]
    assert len({parse(each).trace for each in headers}) == len({parse(each).span for each in headers}) == len(headers)


@pytest.mark.parametrize("ratio", [0.0, 0.01, 0.5, 1.0])
def test_requests_without_a_trace_are_decided_as_the_sdk_decides_and_engines_are_told_so(ratio):
    draw, theirs = random.Random(1), TraceIdRatioBased(ratio)
    one = Tracer(Sampling(ratio, parent_based=True), draw.randbytes, lambda _: None)
    for _ in range(2000):
        header, span = one.begin(b"", now=1.0)
        told = parse(header)
        assert told.sampled == (span is not None) == theirs.should_sample(None, told.trace, "").decision.is_sampled()
        assert told.header() == header
