from types import SimpleNamespace

import pytest

from promptgroup_router.apis.endpoints import ENDPOINTS
from promptgroup_router.decision.span_attributes import api_attributes, end_without_engine, placed_by, span_name
from promptgroup_router.features.tracing.sampling import Sampling
from promptgroup_router.features.tracing.tracer import Tracer

GROUP = "chat/support"
HOME, OTHER, LENT = (SimpleNamespace(id=id_, group=group) for id_, group in enumerate((GROUP, GROUP, "chat/sales")))


@pytest.mark.parametrize("path", [*ENDPOINTS, b"/v1/responses/resp_secret", b"/nowhere"])
def test_every_api_has_an_operation_and_no_path_of_a_client_is_told(path):
    told = api_attributes(path)
    assert told["gen_ai.operation.name"]
    assert told.get("http.route") == (path.decode() if path in ENDPOINTS else None)
    assert "secret" not in f"{told}{span_name(path, '')}"


@pytest.mark.interpreted
@pytest.mark.parametrize(
    ("member", "before", "moved", "tries", "why"),
    [
        (HOME, None, False, 1, "home"),
        (SimpleNamespace(id=HOME.id, group=GROUP), None, False, 1, "home"),  # as a later table has it
        (HOME, object(), False, 1, "session"),
        (OTHER, object(), False, 1, "session"),
        (OTHER, object(), True, 1, "load"),
        (OTHER, None, False, 1, "load"),
        (HOME, object(), True, 1, "home"),
        (LENT, object(), True, 1, "lent"),
        (OTHER, None, False, 2, "retry"),
    ],
)
def test_a_span_says_why_its_request_is_where_it_is(member, before, moved, tries, why):
    found = SimpleNamespace(
        group=GROUP,
        demand=SimpleNamespace(session=7),
        candidates=SimpleNamespace(order=lambda _key: iter((HOME, OTHER))),
    )
    assert placed_by(found, SimpleNamespace(member=member, before=before, moved=moved), tries) == why


@pytest.mark.parametrize(("status", "error"), [(401, ""), (503, "overloaded")])
def test_only_what_is_no_fault_of_the_client_is_an_error(status, error):
    ended = []
    tracer = Tracer(Sampling(1.0, parent_based=False), lambda size: (7).to_bytes(size, "big"), ended.append)
    _, span = tracer.begin(b"", 1.0)
    end_without_engine(span, b"/v1/messages", status=status, now=2.0, error=error or "wrong_api_key")
    assert ended[0].error == error
    assert ended[0].attributes["http.response.status_code"] == status
