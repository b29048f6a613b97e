"""The account of one request: what is counted at each of its ends."""

from types import SimpleNamespace

import pytest

from promptgroup_router.apis.usage import Usage
from promptgroup_router.base.errors import ApiError
from promptgroup_router.base.metrics import Metrics
from promptgroup_router.proxy.record import RequestRecord
from promptgroup_router.routing.match import MatchedBy

pytestmark = pytest.mark.interpreted

GROUP, REVISION = "chat/support", "0123abcd"


class Tokens:
    """Stands for the estimates of lengths, and remembers what it was taught."""

    def __init__(self):
        self.taught = []

    def learn(self, *what):
        self.taught.append(what)


@pytest.fixture
def state():
    return SimpleNamespace(metrics=Metrics(), tokens=Tokens())


def record(state, *, revision=REVISION, tries=1, moved=False):
    demand = SimpleNamespace(streamed=True, session=7)
    route = SimpleNamespace(
        group=GROUP, revision=revision, how=MatchedBy.NAME, demand=demand, model="m", estimated=100, counted=10
    )
    exchange = SimpleNamespace(tries=tries, moved=moved, new=True, member=SimpleNamespace(label="chat/support/x/0"))
    return RequestRecord(state, route, exchange, b"id", began=100.0)


def observed(histogram, *labels):
    """Return the number of observations with these labels, and their sum."""
    found = histogram.values.get(labels)
    return (sum(found.counts), found.sum) if found is not None else (0, 0)


def test_an_answer_counts_its_request_once_with_the_time_to_its_first_byte(state):
    record(state).answer_began(200, now=100.5)
    assert state.metrics.requests.values == {(GROUP, "200"): 1}
    assert observed(state.metrics.first_byte, GROUP) == (1, 0.5)


def test_an_error_of_the_engine_is_no_first_token_of_the_revision(state):
    failed = record(state)
    failed.answer_began(500, now=101.0)
    failed.served(None, now=102.0)
    assert observed(state.metrics.revision_first_token, GROUP, REVISION, "first", "name", "true") == (0, 0)
    assert state.metrics.revision_requests.values == {(GROUP, REVISION, "first", "name", "true", "failed"): 1}


def test_usage_counts_tokens_and_teaches_the_estimate(state):
    served = record(state)
    served.answer_began(200, now=100.1)
    served.served(Usage(110, 64), now=101.0)
    assert state.metrics.prompt_tokens.values == {(GROUP,): 110}
    assert state.metrics.cached_tokens.values == {(GROUP,): 64}
    assert state.tokens.taught == [("m", 100, 100)]


def test_a_refusal_for_want_of_room_is_no_fault_of_the_revision(state):
    record(state, tries=0).refused(ApiError(503, "no room", code="overloaded"), 503, now=101.0)
    assert state.metrics.requests.values == {(GROUP, "503"): 1}
    assert state.metrics.revision_requests.values == {}


@pytest.mark.parametrize(("end", "who", "failed"), [("cut", "engine", 1), ("client_left", "client", 0)])
def test_an_answer_without_an_end_names_who_ended_it(state, end, who, failed):
    getattr(record(state), end)(now=101.0)
    assert state.metrics.cut.values == {(GROUP, who): 1}
    assert sum(state.metrics.revision_requests.values.values()) == failed


def test_a_session_that_moved_is_counted_when_its_answer_begins(state):
    record(state, moved=True).answer_began(200, now=100.1)
    assert state.metrics.sessions_moved.values == {(GROUP,): 1}
