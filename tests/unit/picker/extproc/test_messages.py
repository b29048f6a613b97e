import pytest
from hypothesis import given
from hypothesis import strategies as st

from promptgroup_picker.extproc import messages
from promptgroup_picker.http2.grpc_messages import GrpcError
from promptgroup_picker.stubs.ext_proc_pb2 import HeaderMap, Metadata, ProcessingRequest, ProcessingResponse
from support.grpcclient import endpoints_of


def headers(*values):
    found = HeaderMap()
    for name, value in values:
        found.headers.add(key=name, **({"raw_value": value} if isinstance(value, bytes) else {"value": value}))
    return found


def test_fields_come_as_bytes_or_text_and_the_last_of_a_name_counts():
    found = messages.fields(headers(("X-A", b"1"), ("x-a", "2"), (":path", b"/x")))
    assert found == {b"x-a": b"2", b":path": b"/x"}


def test_fields_that_come_more_than_once():
    assert messages.repeated(headers(("X-A", b"1"), ("x-a", "2"), ("b", b"3"))) == {b"x-a"}


@pytest.mark.parametrize(
    ("hint", "found"),
    [
        (["10.0.0.1:80", "10.0.0.2:80"], {"10.0.0.1:80", "10.0.0.2:80"}),
        ("10.0.0.1:80, 10.0.0.2:80", {"10.0.0.1:80", "10.0.0.2:80"}),
        (["10.0.0.1:80,10.0.0.2:80"], {"10.0.0.1:80", "10.0.0.2:80"}),
        ("", set()),
        ([], set()),
        (7, set()),
    ],
)
def test_the_subset_in_both_forms(hint, found):
    metadata = Metadata()
    metadata.filter_metadata["envoy.lb.subset_hint"]["x-gateway-destination-endpoint-subset"] = hint
    assert messages.subset(metadata) == found


def test_no_subset_is_no_limit():
    metadata = Metadata()
    assert messages.subset(metadata) is None
    metadata.filter_metadata["envoy.lb.subset_hint"]["another"] = "x"
    assert messages.subset(metadata) is None


def test_who_served_is_told_by_metadata_before_attributes():
    message = ProcessingRequest()
    assert messages.served(message) == ""
    message.attributes["envoy.filters.http.ext_proc"]["upstream.address"] = "10.0.0.1:80"
    assert messages.served(message) == "10.0.0.1:80"
    message.metadata_context.filter_metadata["envoy.lb"]["x-gateway-destination-endpoint-served"] = "10.0.0.2:80"
    assert messages.served(message) == "10.0.0.2:80"


def test_header_and_metadata_name_the_same_and_replace_what_the_client_sent():
    response = ProcessingResponse.FromString(messages.picked("10.0.0.1:80,10.0.0.2:80", ("x-secret",)))
    assert endpoints_of(response) == "10.0.0.1:80,10.0.0.2:80"
    head = response.request_headers.response
    assert [each.append_action for each in head.header_mutation.set_headers] == [2]
    assert list(head.header_mutation.remove_headers) == ["x-secret"]


def test_the_route_is_chosen_anew_only_where_all_that_routes_may_match_is_left():
    def chosen_anew(*arguments):
        return ProcessingResponse.FromString(messages.picked("10.0.0.1:80", *arguments)).request_headers.response

    assert chosen_anew().clear_route_cache
    assert chosen_anew((), (("x-more", b"1"),)).clear_route_cache
    assert not chosen_anew(("x-tenant",)).clear_route_cache
    assert not chosen_anew((), ((":path", b"/v1/chat/completions"),)).clear_route_cache


def test_a_body_that_the_gateway_holds_has_its_new_length():
    response = ProcessingResponse.FromString(messages.picked_with_body("10.0.0.1:80", b"longer"))
    told = {
        each.header.key: each.header.raw_value for each in response.request_body.response.header_mutation.set_headers
    }
    assert told["content-length"] == b"6"
    assert response.request_body.response.body_mutation.body == b"longer"
    same = ProcessingResponse.FromString(messages.picked_with_body("10.0.0.1:80", None))
    assert not same.request_body.response.HasField("body_mutation")


@given(st.integers(0, 3 * messages.PIECE), st.booleans())
def test_bodies_come_in_parts_of_which_the_last_ends_them(size, end):
    body = bytes(size)
    for parts, kind in (
        (messages.request_body(body, end=end), "request_body"),
        (messages.response_body(body, end=end), "response_body"),
    ):
        found = [getattr(ProcessingResponse.FromString(each), kind).response.body_mutation for each in parts]
        assert b"".join(each.streamed_response.body for each in found) == body
        assert max(len(each.streamed_response.body) for each in found) <= messages.PIECE
        assert [each.streamed_response.end_of_stream for each in found] == [False] * (len(found) - 1) + [end]


@given(st.binary(max_size=200))
def test_no_bytes_do_more_than_end_the_call(data):
    try:
        message = messages.read(data)
    except GrpcError:
        return
    messages.fields(message.request_headers.headers)
    messages.subset(message.metadata_context)
    messages.served(message)


def message(**parts):
    found = ProcessingRequest(**parts)
    found.protocol_config.request_body_mode = 4
    return found.SerializeToString()


def delimited(number, payload):
    """A field with a length, as protobuf writes it."""
    length, size = b"", len(payload)
    while size >= 0x80:
        length, size = length + bytes((size % 0x80 + 0x80,)), size // 0x80
    return bytes((number << 3 | 2,)) + length + bytes((size,)) + payload


MANY_FIELDS = delimited(2, delimited(1, b"\x0a\x00" * messages.MAX_BESIDE))
BODY = delimited(4, delimited(1, bytes(2**20)))


def test_a_body_may_be_large_and_what_is_beside_it_may_not():
    assert len(messages.read(BODY).request_body.body) == 2**20
    large = message(request_body={"body": bytes(2**20), "end_of_stream": True})
    assert messages.read(large).request_body.end_of_stream
    large = message(request_headers={"headers": {"headers": [{"key": "x", "raw_value": bytes(messages.MAX_BESIDE)}]}})
    with pytest.raises(GrpcError, match="beside a part of a body"):
        messages.read(large)


@pytest.mark.parametrize(
    "written",
    [
        MANY_FIELDS,
        BODY + MANY_FIELDS,
        b"\x58\x01" * 40 + MANY_FIELDS,  # numbers
        b"\x5d" + b"\x00\x22\x80\x80" + b"\x08" + MANY_FIELDS,  # a fixed number, read as a body's beginning
        b"\x58" + b"\x80" * 6 + b"\x01" + MANY_FIELDS,  # a number that is longer than it needs to be
        delimited(4, b"") * 70 + MANY_FIELDS,
        BODY[:-1],
        bytes(messages.MAX_BESIDE + 1),
    ],
)
def test_no_form_of_a_message_hides_what_is_beside_a_body(written):
    assert messages._beside_bodies(written) > messages.MAX_BESIDE
    with pytest.raises(GrpcError):
        messages.read(written)


@given(st.binary(max_size=200))
def test_any_bytes_have_a_size(data):
    assert 0 <= messages._beside_bodies(data) <= len(data)
