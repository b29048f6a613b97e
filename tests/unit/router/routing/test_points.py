from types import SimpleNamespace

import pytest

from promptgroup_router.base.errors import ApiError
from promptgroup_router.routing.points import (
    Answering,
    InTurn,
    RequestEnd,
    RequestFeature,
    error_for,
    feature_of,
    tail_of,
)

pytestmark = pytest.mark.interpreted


class Upper:
    def feed(self, content):
        return content.upper()

    def finish(self):
        return b"."


class Doubling:
    def feed(self, content):
        return content * 2

    def finish(self):
        return b"!"


class Watching(RequestFeature):
    def tail(self, tail, *, streamed):
        return SimpleNamespace(of=tail, streamed=streamed)

    def error_for(self, status):
        return ApiError(502, "hidden") if status == 500 else None


def test_a_feature_does_nothing_unless_it_says_so():
    feature, names = RequestFeature(), frozenset((b"accept",))
    answer = Answering(None, 200, streamed=True, compressed=False, now=0.0)
    feature.answering(answer)
    feature.answered(200)
    feature.ended(RequestEnd(None, 0.0, worked=True, metered=True))
    feature.withdrawn(0.0)
    assert (answer.limits, answer.fields, answer.rewriter) == (b"", [], None)
    assert feature.engine_fields(names) is names
    assert feature.engine_body(b"{}", None, bytes) == b"{}"
    assert not feature.binds
    assert error_for([feature], 500) is None
    assert tail_of([feature], "tail", streamed=True) == "tail"


def test_bodies_are_rewritten_by_one_feature_after_the_other():
    answer = Answering(None, 200, streamed=True, compressed=False, now=0.0)
    answer.rewrite(Upper())
    answer.rewrite(Doubling())
    assert isinstance(answer.rewriter, InTurn)
    assert answer.rewriter.feed(b"ab") + answer.rewriter.finish() == b"ABAB..!"


def test_the_first_error_takes_the_place_of_an_engines():
    assert error_for([RequestFeature(), Watching()], 500).status == 502
    assert error_for([RequestFeature(), Watching()], 400) is None


def test_features_watch_an_answer_around_each_other():
    tail = tail_of([Watching(), Watching()], "tail", streamed=False)
    assert (tail.of.of, tail.streamed) == ("tail", False)


def test_a_feature_is_found_by_its_kind():
    watching = Watching()
    assert feature_of([RequestFeature(), watching], Watching) is watching
    assert feature_of([RequestFeature()], Watching) is None
