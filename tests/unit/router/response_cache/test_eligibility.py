from types import SimpleNamespace

import orjson
import pytest

from promptgroup_contract.access import ANONYMOUS, Caller
from promptgroup_contract.table import CacheScope, ResponseCaching
from promptgroup_router.apis.request import CHAT_PATH, ApiKind, parse
from promptgroup_router.base.errors import ApiError
from promptgroup_router.base.metrics import Metrics
from promptgroup_router.features.kept_request import KeptRequest
from promptgroup_router.http11.http1 import parse_request
from promptgroup_router.prefixes.cache_domain import SHARED
from promptgroup_router.response_cache.cacheable import Eligibility, EligibleRequest
from promptgroup_router.routing.points import RequestFeature
from promptgroup_router.routing.route import Rewrite

pytestmark = pytest.mark.interpreted

GROUP = "chat/support"


class Withdrawn(RequestFeature):
    """Counts how often a request was withdrawn."""

    def __init__(self):
        self.times = 0

    def withdrawn(self, now):
        assert now == 5.0
        self.times += 1


class Route(SimpleNamespace):
    """Stands for a route."""

    def remove(self, feature):
        self.features = tuple(item for item in self.features if item is not feature)


def judged(*lines, caller=ANONYMOUS, scope=CacheScope.GROUP, parsed=True, **body):
    """Return what is decided of a request, its route and the metrics."""
    messages = [{"role": "user", "content": "Hi"}]
    request = parse(ApiKind.CHAT, orjson.dumps({"model": "m", "messages": messages, "temperature": 0} | body))
    head = parse_request(b"\r\n".join([b"POST %b HTTP/1.1" % CHAT_PATH, b"host: a", *lines, b"", b""]))
    route = Route(
        group=GROUP,
        caller=caller,
        rewrite=Rewrite(domain=SHARED),
        candidates=SimpleNamespace(responses=ResponseCaching(60, 1000, scope=scope), settings="e1"),
        features=(Withdrawn(), *((KeptRequest(request),) if parsed else ())),
    )
    metrics = Metrics()
    decides = Eligibility(metrics, lambda: 5.0)
    try:
        return decides.judge(head, route), route, metrics
    except ApiError as error:
        return error, route, metrics


def test_a_request_with_one_answer_is_eligible_and_its_document_is_no_longer_stored():
    result, route, metrics = judged()
    assert isinstance(result, EligibleRequest)
    assert (result.sharers, result.directives.no_cache, result.endpoint.cached) == (b"", False, True)
    assert [feature.ask for feature in route.features if isinstance(feature, KeptRequest)] == [None]
    assert metrics.responses.values == {}


@pytest.mark.parametrize(
    ("lines", "fields", "detail"),
    [
        ((), {"temperature": 1}, b"sampling"),
        ((), {"n": 2}, b"choices"),
        ((b"cache-control: no-store",), {}, b"no-store"),
        ((), {"scope": CacheScope.CALLER}, b"caller"),
    ],
)
def test_any_other_bypasses_the_cache_and_is_counted(lines, fields, detail):
    result, route, metrics = judged(*lines, **fields)
    assert result == [(b"cache-status", b"promptgroup; fwd=bypass; detail=" + detail)]
    assert [type(feature) for feature in route.features] == [Withdrawn]
    assert metrics.responses.values == {(GROUP, "bypass"): 1}


@pytest.mark.parametrize(
    ("lines", "fields", "status"),
    [
        ((b"cache-control: only-if-cached",), {"temperature": 1}, 504),
        ((), {"cache": "yes"}, 400),
    ],
)
def test_a_refused_request_is_withdrawn_once(lines, fields, status):
    error, route, metrics = judged(*lines, **fields)
    assert (error.status, route.features[0].times, metrics.responses.values) == (status, 1, {})


def test_callers_share_an_answer_as_their_group_allows():
    team = Caller("team-a")
    assert judged(caller=team, scope=CacheScope.CALLER)[0].sharers == b"name:team-a"
    assert judged(caller=team)[0].sharers == b""
    one, other = (judged(b"authorization: Bearer " + key)[0].sharers for key in (b"a", b"b"))
    assert one.startswith(b"credential:")
    assert one != other


def test_a_request_that_was_not_parsed_for_the_cache_is_left_alone():
    assert judged(parsed=False)[0] is None
