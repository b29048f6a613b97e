import pytest
from hypothesis import given
from hypothesis import strategies as st

from promptgroup_router.http11.trace_context import TraceContext, parse, sampled_trace, trace_id

TRACE, SPAN = "4bf92f3577b34da6a3ce929d0e0e4736", "00f067aa0ba902b7"
HEADERS = {
    f"00-{TRACE}-{SPAN}-01": TRACE,
    f"01-{TRACE}-{SPAN}-01-more": TRACE,
    f"00-{TRACE}-{SPAN}-01-more": "",
    f"ff-{TRACE}-{SPAN}-01": "",
    f"00-{TRACE.upper()}-{SPAN}-01": "",
    f"00-{'0' * 32}-{SPAN}-01": "",
    f"00-{TRACE}-{'0' * 16}-01": "",
    "a prompt": "",
    "": "",
}


@pytest.mark.parametrize("header", HEADERS)
def test_the_trace_of_a_client_is_named_if_its_header_has_the_form(header):
    assert trace_id(header.encode()) == HEADERS[header]


@given(st.integers(1, 2**128 - 1), st.integers(1, 2**64 - 1), st.integers(0, 255))
def test_a_header_is_read_as_it_was_written(trace, span, flags):
    written = TraceContext(trace, span, flags)
    assert parse(written.header()) == written
    assert written.sampled == bool(flags & 1)
    assert sampled_trace(written.header()) == (trace if flags & 1 else 0)


@given(st.binary(max_size=80))
def test_no_header_raises(value):
    assert isinstance(trace_id(value), str)
    assert isinstance(sampled_trace(value), int)
