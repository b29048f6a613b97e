"""The endpoint-picker protocol, case by case."""

import json
import os
import time

import grpc
import pytest

from conftest import DESTINATION, external, named

EVENT = b'data: {"choices":[{"delta":{"content":"a"}}]}\n\n'


# --- the choice ------------------------------------------------------------------------------------------------


def test_header_names_an_endpoint_of_the_pool(request_, subject):
    """The picker MUST set the header to an endpoint that is ready."""
    request_.whole()
    assert set(named(request_.next())) <= subject.endpoints


def test_header_value_is_bytes(request_):
    """Values are in raw_value: gateways that have the runtime guard of header values refuse `value`."""
    request_.whole()
    options = request_.next().request_headers.response.header_mutation.set_headers
    assert all(each.header.raw_value for each in options)


def test_metadata_equals_header(request_):
    """The picker MUST set the metadata `envoy.lb`, and it MUST NOT differ from the header."""
    request_.whole()
    message = request_.next()
    assert message.dynamic_metadata["envoy.lb"][DESTINATION] == ",".join(named(message))


def test_endpoints_are_addresses_with_ports(request_):
    """Each endpoint is `ip:port`."""
    request_.whole()
    for each in named(request_.next()):
        host, _, port = each.rpartition(":")
        assert host
        assert port.isdecimal()


def test_no_endpoint_is_named_twice(request_):
    """The list is an order of fallbacks."""
    request_.whole()
    found = named(request_.next())
    assert len(found) == len(set(found))


def test_route_is_computed_anew(request_):
    """The route depends on the header that the picker sets."""
    request_.whole()
    assert request_.next().request_headers.response.clear_route_cache


def test_clients_destination_is_replaced(request_, subject):
    """A client cannot choose its endpoint."""
    request_.whole(x_gateway_destination_endpoint="192.0.2.1:1")
    message = request_.next()
    assert set(named(message)) <= subject.endpoints
    (option,) = [
        each for each in message.request_headers.response.header_mutation.set_headers if each.header.key == DESTINATION
    ]
    # Envoy replaces unless it is told to append, also where append_action has the value of appending, its default
    assert not option.append.value


def test_equal_requests_get_an_answer_each(requests, subject):
    """Each stream is a request of its own."""
    found = [requests() for _ in range(20)]
    for each in found:
        each.whole()
    for each in found:
        assert set(named(each.next())) <= subject.endpoints


# --- the order of messages ---------------------------------------------------------------------------------------


def test_headers_before_body(request_, subject):
    """The answer to the headers comes first, then the body."""
    request_.whole()
    named(request_.next())
    assert b"".join(each.body for each in request_.parts("request_body"))


def test_nothing_is_decided_on_half_a_body(request_, subject):
    """The choice rests on the whole request."""
    request_.head()
    request_.body(subject.body[:10], end=False)
    assert request_.silent()
    request_.body(subject.body[10:])
    named(request_.next())


def test_body_is_given_back_whole(request_, subject):
    """In full duplex the picker sends the body back."""
    request_.whole()
    named(request_.next())
    found = json.loads(b"".join(each.body for each in request_.parts("request_body")))
    assert found["messages"][-1] == json.loads(subject.body)["messages"][-1]


@pytest.mark.parametrize("size", [1, 7, 100])
def test_body_in_many_parts(request_, subject, size):
    """A gateway cuts bodies where it likes."""
    request_.head()
    for at in range(0, len(subject.body), size):
        request_.body(subject.body[at : at + size], end=at + size >= len(subject.body))
    named(request_.next())
    assert json.loads(b"".join(each.body for each in request_.parts("request_body")))


def test_last_part_may_be_empty(request_, subject):
    """Envoy ends small bodies with an empty part."""
    request_.head()
    request_.body(subject.body, end=False)
    request_.body(b"")
    named(request_.next())
    request_.parts("request_body")


def test_last_part_may_come_twice(request_, subject):
    """Envoy has repeated it (envoy#46237): the second one gets no answer."""
    request_.whole()
    request_.body(b"")
    named(request_.next())
    request_.parts("request_body")
    assert request_.silent()


def test_only_the_last_part_ends_the_body(request_, subject):
    """end_of_stream is set once."""
    body = json.loads(subject.body)
    body["messages"][-1]["content"] = "x" * 300_000
    request_.whole(json.dumps(body).encode())
    named(request_.next())
    found = request_.parts("request_body")
    assert [each.end_of_stream for each in found[:-1]] == [False] * (len(found) - 1)


def test_parts_are_at_most_64_kib(request_, subject):
    """Gateways refuse larger ones."""
    body = json.loads(subject.body)
    body["messages"][-1]["content"] = "x" * 700_000
    request_.whole(json.dumps(body).encode())
    named(request_.next())
    found = request_.parts("request_body")
    assert max(len(each.body) for each in found) <= 65536
    assert len(json.loads(b"".join(each.body for each in found))["messages"][-1]["content"]) == 700_000


def test_trailers_end_a_request(request_, subject):
    """With trailers no part of the body has end_of_stream."""
    request_.head()
    request_.body(subject.body, end=False)
    request_.trailers()
    named(request_.next())
    kinds = [request_.next().WhichOneof("response") for _ in range(2)]
    assert kinds == ["request_body", "request_trailers"]


def test_body_before_trailers_does_not_end_the_stream(request_, subject):
    """The engine waits for the trailers."""
    request_.head()
    request_.body(subject.body, end=False)
    request_.trailers()
    named(request_.next())
    assert not request_.next().request_body.response.body_mutation.streamed_response.end_of_stream


# --- subsets -----------------------------------------------------------------------------------------------------


TEXT = pytest.param("text", marks=pytest.mark.optional)
"""The proposal has a list; some gateways' filters write one text."""


@pytest.mark.parametrize("form", ["list", TEXT])
def test_subset_limits_the_choice(requests, subject, form):
    """The picker MUST choose from the subset; it is a list, or one text with commas."""
    for one in sorted(subject.endpoints):
        each = requests()
        each.whole(subset=[one] if form == "list" else one)
        assert named(each.next()) == [one]


def test_subset_of_all_is_no_limit(request_, subject):
    """A gateway may name the whole pool."""
    request_.whole(subset=sorted(subject.endpoints))
    assert set(named(request_.next())) <= subject.endpoints


def test_subset_limits_fallbacks_too(request_, subject):
    """No endpoint outside of the subset is named."""
    one = sorted(subject.endpoints)[:1]
    request_.whole(subset=[*one, "192.0.2.1:1"])
    assert named(request_.next()) == one


@pytest.mark.parametrize("subset", [[], ["192.0.2.1:1"], pytest.param("192.0.2.1:1", marks=pytest.mark.optional)])
def test_subset_without_an_eligible_endpoint_is_503(request_, subset):
    """If none is eligible the picker MUST answer 503."""
    request_.whole(subset=subset)
    assert request_.next().immediate_response.status.code == 503


def test_other_metadata_is_ignored(request_, subject):
    """Filters put what they like into the namespace."""
    message = external.ProcessingRequest()
    for name, value in ((":method", "POST"), (":path", subject.path)):
        message.request_headers.headers.headers.add(key=name, raw_value=value.encode())
    message.metadata_context.filter_metadata["envoy.lb.subset_hint"]["something else"] = ["192.0.2.1:1"]
    message.metadata_context.filter_metadata["com.example"]["x"] = 1
    request_.send(message)
    request_.body(subject.body)
    assert set(named(request_.next())) <= subject.endpoints


def test_without_protocol_config(request_, subject):
    """Older gateways do not say how they show bodies."""
    message = external.ProcessingRequest()
    for name, value in ((":method", "POST"), (":path", subject.path)):
        message.request_headers.headers.headers.add(key=name, raw_value=value.encode())
    request_.send(message)
    request_.body(subject.body)
    named(request_.next())


def test_header_values_as_text(request_, subject):
    """Gateways may fill `value` instead of `raw_value`."""
    message = external.ProcessingRequest()
    for name, value in ((":method", "POST"), (":path", subject.path)):
        message.request_headers.headers.headers.add(key=name, value=value)
    request_.send(message)
    request_.body(subject.body)
    named(request_.next())


# --- answers of the picker's own ---------------------------------------------------------------------------------


@pytest.mark.optional
@pytest.mark.parametrize("body", [b"", b"{", b"[]", b"\xff\xfe", b'{"model": 7}'])
def test_a_body_that_is_no_request_is_4xx(request_, body):
    """A picker that reads bodies refuses those that it cannot read."""
    request_.whole(body)
    assert 400 <= request_.next().immediate_response.status.code < 500


@pytest.mark.optional
def test_unknown_model_is_404(request_, subject):
    """A picker that knows its models says so."""
    request_.whole(json.dumps(json.loads(subject.body) | {"model": "nobody/serves-this"}).encode())
    answer = request_.next().immediate_response
    assert answer.status.code == 404
    assert answer.body


def test_head_alone_is_answered(request_):
    """A request without a body gets a choice, or an answer of the picker's own, at once."""
    request_.head(end=True, method="GET", path="/v1/models")
    assert request_.next().WhichOneof("response") in ("request_headers", "immediate_response")


# --- the answer --------------------------------------------------------------------------------------------------


def chosen(request):
    request.whole()
    first = named(request.next())[0]
    request.parts("request_body")
    return first


def test_answer_head_is_answered(request_):
    """Each message of the answer gets one, in order."""
    served = chosen(request_)
    request_.answer_head(served=served)
    assert request_.next().WhichOneof("response") == "response_headers"


def test_answer_is_given_back_whole(request_):
    """In full duplex the picker sends the answer back."""
    served = chosen(request_)
    request_.answer_head(served=served)
    request_.next()
    request_.answer_body(b'{"usage":{"prompt_tokens":3}}')
    assert json.loads(b"".join(each.body for each in request_.parts("response_body")))


def test_events_are_given_back_one_by_one(request_):
    """Nothing of a stream is held back."""
    served = chosen(request_)
    request_.answer_head(served=served, kind="text/event-stream")
    request_.next()
    for number in range(5):
        request_.answer_body(EVENT, end=number == 4)
        part = request_.next().response_body.response.body_mutation.streamed_response
        assert part.body == EVENT
        assert part.end_of_stream is (number == 4)


def test_large_parts_of_an_answer(request_):
    """Parts of an answer are at most 64 KiB, too."""
    served = chosen(request_)
    request_.answer_head(served=served)
    request_.next()
    data = b'{"data":"' + b"x" * 500_000 + b'"}'
    request_.answer_body(data)
    found = request_.parts("response_body")
    assert b"".join(each.body for each in found) == data
    assert max(len(each.body) for each in found) <= 65536


def test_answer_trailers_are_answered(request_):
    """Trailers end an answer."""
    served = chosen(request_)
    request_.answer_head(served=served)
    request_.next()
    request_.answer_body(b"{}", end=False)
    request_.next()
    request_.trailers("response_trailers")
    assert request_.next().WhichOneof("response") == "response_trailers"


def test_answer_without_a_request_is_given_back(request_):
    """A filter of the gateway that refuses a request before the picker sees it shows its answer alone."""
    request_.answer_head(403, first=True)
    assert request_.next().WhichOneof("response") == "response_headers"
    request_.answer_body(b"denied")
    assert b"".join(each.body for each in request_.parts("response_body")) == b"denied"


@pytest.mark.parametrize("served", ["", "192.0.2.1:1"])
def test_served_endpoint_may_be_missing_or_unknown(request_, served):
    """Gateways need not tell it, and may have used a fallback of their own."""
    chosen(request_)
    request_.answer_head(served=served)
    assert request_.next().WhichOneof("response") == "response_headers"


@pytest.mark.parametrize("status", [204, 404, 500, 503])
def test_errors_of_engines_pass(request_, status):
    """An engine's status is not the picker's matter."""
    served = chosen(request_)
    request_.answer_head(status, served=served, end=True)
    found = request_.next().response_headers.response.header_mutation
    statuses = [each.header for each in found.set_headers if each.header.key == ":status"]
    assert {each.raw_value.decode() or each.value for each in statuses} <= {str(status)}


# --- the end of a stream -----------------------------------------------------------------------------------------


def test_half_closed_stream_ends(request_):
    """The picker ends its side when the gateway has ended its own."""
    served = chosen(request_)
    request_.answer_head(served=served)
    request_.next()
    request_.answer_body(b"{}")
    request_.parts("response_body")
    request_.close()
    assert request_.next() is None


def test_client_that_leaves_early(requests, subject):
    """Streams end at any moment; others go on."""
    for stop in range(3):
        left = requests()
        left.head()
        if stop > 0:
            left.body(subject.body[:5], end=False)
        if stop > 1:
            left.body(subject.body[5:])
        left.call.cancel()
    request = requests()
    request.whole()
    named(request.next())


# --- what is no protocol -----------------------------------------------------------------------------------------


def failed(request) -> bool:
    message = request.next()
    return message is None or isinstance(message, grpc.RpcError) or message.HasField("immediate_response")


def test_body_before_headers_ends_the_stream(request_, subject):
    """Without headers there is no request."""
    request_.body(subject.body)
    assert failed(request_)


@pytest.mark.optional
def test_message_of_nothing_ends_the_stream(request_):
    """A message without a part."""
    request_.send(external.ProcessingRequest())
    assert failed(request_)


def test_bytes_that_are_no_message_end_the_stream(request_):
    """Anything can come from a network."""
    request_.send(b"\xff\xff\xff\xff")
    assert failed(request_)


def test_broken_streams_do_not_harm_others(requests, subject):
    """One stream's fault is its own."""
    good = requests()
    good.head()
    for _ in range(20):
        requests().send(b"\x0a\xff")
    good.body(subject.body)
    named(good.next())


def test_a_message_beyond_grpcs_limit_ends_the_stream_alone(requests):
    """gRPC's limit is 4 MiB unless a server has another."""
    large = requests()
    large.head()
    large.body(b"x" * 5_000_000)
    message = large.next()
    assert message is None or isinstance(message, grpc.RpcError) or message.HasField("immediate_response")
    other = requests()
    other.whole()
    named(other.next())


def test_many_streams_at_once(requests, subject):
    """A gateway has a stream for each request of its clients."""
    found = [requests() for _ in range(100)]
    for each in found:
        each.head()
    for each in reversed(found):
        each.body(subject.body)
    began = time.monotonic()
    for each in found:
        named(each.next())
    assert time.monotonic() - began < 30


# --- health ------------------------------------------------------------------------------------------------------


def health(subject, service: str) -> int:
    """Return the status of a service; 0 if it is not known. Question and answer have one field each, the first."""
    name = service.encode()
    address = os.environ.get("EPP_HEALTH")
    channel = grpc.insecure_channel(address) if address else subject.channel
    check = channel.unary_unary(
        "/grpc.health.v1.Health/Check",
        request_serializer=lambda _: b"\x0a" + bytes([len(name)]) + name if name else b"",
        response_deserializer=lambda data: data[1] if data[:1] == b"\x08" else 0,
    )
    return check(None, timeout=5)


@pytest.mark.optional
def test_health_of_the_service(subject):
    """Gateways check the picker by the service's name."""
    assert health(subject, "envoy.service.ext_proc.v3.ExternalProcessor") == 1


@pytest.mark.optional
def test_health_of_an_unknown_service(subject):
    """grpc.health.v1: NOT_FOUND."""
    with pytest.raises(grpc.RpcError) as found:
        health(subject, "nobody.serves.This")
    assert found.value.code() == grpc.StatusCode.NOT_FOUND
