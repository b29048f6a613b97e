import pytest

from promptgroup_picker.extproc.messages import MODE_BUFFERED, MODE_FULL_DUPLEX, MODE_NONE, MODE_STREAMED, UNCHANGED
from promptgroup_picker.extproc.request_side import EndpointChoice, RequestSide
from promptgroup_picker.stubs.ext_proc_pb2 import HttpBody, ProcessingResponse

CHOICE = EndpointChoice("10.0.0.1:8000", (), ())


def side(mode: int) -> RequestSide:
    found = RequestSide()
    found.mode = mode
    return found


def read(owed) -> list[ProcessingResponse]:
    return [ProcessingResponse.FromString(each) for each in owed]


def kinds(owed) -> list[str]:
    return [each.WhichOneof("response") for each in read(owed)]


def chosen(shown: RequestSide, body: bytes = b"") -> list[str]:
    return kinds(shown.chosen(CHOICE, body, changed=False))


def test_a_head_alone_is_owed_the_choice_in_each_mode():
    for mode in (MODE_NONE, MODE_STREAMED, MODE_BUFFERED, MODE_FULL_DUPLEX):
        assert chosen(side(mode)) == ["request_headers"]


def test_a_head_goes_on_at_once_where_the_body_is_held():
    assert kinds(side(MODE_BUFFERED).headed()) == ["request_headers"]
    assert kinds(side(MODE_FULL_DUPLEX).headed()) == []


def test_a_choice_can_follow_a_body_in_two_modes_alone():
    assert [side(mode).shows_bodies for mode in range(5)] == [False, False, True, False, True]


@pytest.mark.parametrize("end", [True, False])
def test_a_held_body_is_whole_with_its_message_and_another_with_its_end(end):
    """The message of a body that is held says that more follows where trailers do."""
    assert side(MODE_BUFFERED).is_whole(HttpBody(body=b"x", end_of_stream=end))
    assert side(MODE_FULL_DUPLEX).is_whole(HttpBody(body=b"x", end_of_stream=end)) is end


@pytest.mark.parametrize("body", [b"", b"x"])
def test_a_body_that_came_is_owed_an_answer_whatever_its_length(body):
    shown = side(MODE_FULL_DUPLEX)
    shown.is_whole(HttpBody(body=body, end_of_stream=True))
    owed = read(shown.chosen(CHOICE, body, changed=False))
    assert [each.WhichOneof("response") for each in owed] == ["request_headers", "request_body"]
    part = owed[1].request_body.response.body_mutation.streamed_response
    assert (part.body, part.end_of_stream) == (body, True)
    shown = side(MODE_BUFFERED)
    shown.is_whole(HttpBody(body=body, end_of_stream=True))
    assert chosen(shown, body) == ["request_body"]


@pytest.mark.parametrize("mode", [MODE_BUFFERED, MODE_FULL_DUPLEX])
def test_trailers_that_came_before_the_choice_are_answered_behind_it_once(mode):
    shown = side(mode)
    shown.is_whole(HttpBody(body=b"x"))
    shown.trailers = UNCHANGED["request_trailers"]
    owed = read(shown.chosen(CHOICE, b"x", changed=False))
    assert owed[-1].WhichOneof("response") == "request_trailers"
    assert not any(each.request_body.response.body_mutation.streamed_response.end_of_stream for each in owed)
    assert not shown.trailers


def test_a_held_head_without_a_body_has_nothing_that_a_choice_could_go_with():
    shown = {mode: side(mode) for mode in (MODE_BUFFERED, MODE_FULL_DUPLEX)}
    for each in shown.values():
        each.trailers = UNCHANGED["request_trailers"]
    assert shown[MODE_BUFFERED].is_late
    assert not shown[MODE_FULL_DUPLEX].is_late
    assert chosen(shown[MODE_FULL_DUPLEX]) == ["request_headers", "request_trailers"]
    shown[MODE_BUFFERED].is_whole(HttpBody())
    assert not shown[MODE_BUFFERED].is_late


def test_a_changed_body_goes_with_the_choice_where_it_is_held():
    shown = side(MODE_BUFFERED)
    shown.is_whole(HttpBody(body=b"x"))
    (owed,) = read(shown.chosen(CHOICE, b"another", changed=True))
    assert owed.request_body.response.body_mutation.body == b"another"
