import pytest
from hypothesis import given
from hypothesis import strategies as st

from promptgroup_router.base.exposition import OPENMETRICS, PROMETHEUS, accepted

OF_PROMETHEUS = (
    b"application/openmetrics-text;version=1.0.0;escaping=allow-utf-8;q=0.5,application/openmetrics-text;version=0.0.1;"
    b"q=0.4,text/plain;version=1.0.0;escaping=allow-utf-8;q=0.3,text/plain;version=0.0.4;q=0.2,*/*;q=0.1"
)


@pytest.mark.parametrize(
    ("accept", "expected"),
    [
        (OF_PROMETHEUS, OPENMETRICS),
        (b"application/openmetrics-text", OPENMETRICS),
        (b"Application/OpenMetrics-Text; version=1.0.0 ; Q=1", OPENMETRICS),
        (OPENMETRICS.content_type, OPENMETRICS),
        (b"", PROMETHEUS),
        (b"*/*", PROMETHEUS),
        (b"text/plain;version=0.0.4", PROMETHEUS),
        (b"text/plain, application/openmetrics-text;q=0.5", PROMETHEUS),
        (b"application/openmetrics-text;q=0", PROMETHEUS),
        (b"application/openmetrics-text;q=much", PROMETHEUS),
        (b"application/openmetrics-text;q=nan", PROMETHEUS),
        (b"application/openmetrics-textual", PROMETHEUS),
    ],
)
def test_only_who_accepts_openmetrics_gets_it(accept, expected):
    assert accepted(accept) is expected


@given(st.binary(max_size=200) | st.lists(st.sampled_from([b"application/openmetrics-text", b";q=", b",", b"0.1"])))
def test_any_header_has_an_answer(accept):
    assert accepted(b"".join(accept) if isinstance(accept, list) else accept) in (PROMETHEUS, OPENMETRICS)
