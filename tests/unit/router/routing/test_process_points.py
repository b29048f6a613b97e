import pytest

from promptgroup_contract.access import ANYBODY, Access, AccessType
from promptgroup_router.base.errors import ApiError
from promptgroup_router.routing.process_points import (
    Continuation,
    GroupPoints,
    ProcessFeatures,
    RouterFeature,
    RoutingPoints,
)


def test_a_feature_of_a_process_does_nothing_unless_it_overrides_a_point():
    feature = RouterFeature()
    feature.sweep(0.0)
    feature.keep(())
    feature.refused(ApiError(503, "none"))
    assert list(feature.waiting()) == []


def test_without_features_all_callers_are_anonymous_and_nothing_is_traced():
    features, own = ProcessFeatures(), Access(AccessType.API_KEY)
    assert (features.access(None), features.access(own)) == (ANYBODY, own)
    assert (features.tracer, features.credential("a", "b/c")) == (None, b"")


def test_a_group_has_the_points_of_every_group_unless_it_has_its_own():
    routing = RoutingPoints()
    own = GroupPoints(stripped=frozenset(("cache",)))
    routing.groups = {"chat/a": own}
    assert routing.of("chat/a") is own
    assert routing.of("chat/b") is routing.every


@pytest.mark.interpreted
def test_a_request_continues_no_response_without_a_feature_that_stores_any():
    continuation = Continuation()
    assert continuation.session(None, None) is None
    assert continuation.revision(None, None) is None
    assert continuation.replica(None, None).member is None
