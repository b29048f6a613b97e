"""Answers as sources for several clients."""

import pytest

from promptgroup_router.flights.source import Source, SourceState, source_of
from support.asks import answer


@pytest.mark.parametrize(
    ("content_type", "streamed"), [(b"text/event-stream; charset=utf-8", True), (b"application/json", False)]
)
def test_a_kept_answer_is_a_whole_source(content_type, streamed):
    source = source_of(answer(content_type=content_type, pieces=(b"a", b"b")))
    assert (source.state, source.streamed, source.pieces, source.shared) == (
        SourceState.WHOLE,
        streamed,
        [b"a", b"b"],
        [b"a", b"b"],
    )
    assert source.headers == [(b"content-type", content_type)]


def test_a_source_ends_when_nothing_will_change():
    ended = {state for state in SourceState if Source(state=state).ends}
    assert ended == {SourceState.WHOLE, SourceState.CUT, SourceState.REFUSED}
