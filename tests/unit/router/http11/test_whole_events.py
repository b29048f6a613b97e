import time

import pytest
from hypothesis import given
from hypothesis import strategies as st

from promptgroup_contract.caller_rules import CachedTokens
from promptgroup_router.callers.reported_usage import ReportedUsage
from promptgroup_router.callers.unasked_usage import UsageEvents
from promptgroup_router.http11.whole_events import MOST_HELD, WholeEvents

SMALL, LARGE = 64 * 1024, 512 * 1024
LINEAR = 4.0
"""Most that eight times the bytes may cost beyond eight times the time."""


@given(parts=st.lists(st.binary(max_size=3) | st.sampled_from([b"\n", b"\r\n", b"\n\n", b"\r\n\r", b"data: x"])))
def test_what_is_handed_on_ends_with_an_event_and_all_of_it_comes(parts):
    events, got = WholeEvents(), b""
    for part in parts:
        whole = events.feed(part)
        assert whole == b"" or whole.endswith((b"\n\n", b"\r\n\r\n"))
        got += whole
        behind = b"".join(parts)[len(got) :][: len(part)]
        assert whole or not behind.endswith(b"\n\n")
    left = events.finish()
    assert got + left == b"".join(parts)
    assert b"\n\n" not in left
    assert b"\r\n\r\n" not in left


def test_an_event_that_never_ends_is_handed_on_in_parts():
    events = WholeEvents()
    assert events.feed(b"x" * MOST_HELD) == b""
    assert events.feed(b"x") == b"x" * (MOST_HELD + 1)
    assert events.feed(b"x") == b""


def cost(make, size):
    """Least CPU time of several tries to feed so many bytes without an end of an event, in pieces of 32."""
    least, piece = float("inf"), b"x" * 32
    for _ in range(4):
        body = make()
        began = time.thread_time()
        for _ in range(size // len(piece)):
            body.feed(piece)
        least = min(least, time.thread_time() - began)
    return max(least, 2e-4)


@pytest.mark.parametrize(
    "make",
    [WholeEvents, UsageEvents, lambda: ReportedUsage(CachedTokens.HIDDEN, streamed=True)],
    ids=["events", "unasked usage", "reported usage"],
)
def test_a_stream_in_small_pieces_costs_time_in_proportion_to_its_length(make):
    assert cost(make, LARGE) < LINEAR * (LARGE / SMALL) * cost(make, SMALL)
