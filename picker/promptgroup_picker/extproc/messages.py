"""Reads a gateway's messages and writes the picker's. Does no I/O.

Field numbers are those of Envoy's API; `stubs` has them.
"""

from collections.abc import Iterable, Iterator, Mapping
from functools import lru_cache

from google.protobuf.message import DecodeError
from google.protobuf.struct_pb2 import Struct

from promptgroup_picker.http2.grpc_messages import GrpcError, GrpcStatus
from promptgroup_picker.stubs.ext_proc_pb2 import (
    BodyMutation,
    BodyResponse,
    CommonResponse,
    HeaderMap,
    HeaderMutation,
    HeadersResponse,
    HeaderValue,
    HeaderValueOption,
    HttpStatus,
    ImmediateResponse,
    Metadata,
    ProcessingRequest,
    ProcessingResponse,
    StreamedBodyResponse,
    TrailersResponse,
)

DESTINATION = "x-gateway-destination-endpoint"
"""Header, and field of the metadata, that names where a request goes."""
PATH = ":path"
"""Field of a request that has its path and its query."""
SUBSET = "x-gateway-destination-endpoint-subset"
SERVED = "x-gateway-destination-endpoint-served"
_LB = "envoy.lb"
_SUBSET_HINT = "envoy.lb.subset_hint"
_ATTRIBUTES = "envoy.filters.http.ext_proc"
_UPSTREAM = "upstream.address"

MODE_NONE, MODE_STREAMED, MODE_BUFFERED, MODE_FULL_DUPLEX = 0, 1, 2, 4
"""The way in which a gateway shows a body (BodySendMode)."""

MAX_BESIDE = 2**17
"""Most bytes of a message beside a part of a body: header fields, metadata and attributes."""
MAX_PARTS = 64
"""Most fields at the top of a message that is larger than that."""
_BODIES = (4, 5)
"""Numbers of the fields that have parts of bodies."""
_NUMBER, _BYTES = 0, 2
"""The wire types of Envoy's fields: numbers; texts, bytes and messages."""
_LONGEST = 5
"""Bytes of a tag or a length, at most."""

MOST_NAMES = 512
"""Most characters of the names of removed fields in a message that is cached."""
PIECE = 62_000
"""Most bytes of a body in one message: gateways take at most 64 KiB."""
_OVERWRITE = 2
"""HeaderAppendAction: what the client sent under the name is replaced."""


def read(data: bytes) -> ProcessingRequest:
    """Return a gateway's message.

    Raises:
        GrpcError: it is none, or has more beside a body than header fields need, which takes long to read.
    """
    if len(data) > MAX_BESIDE and _beside_bodies(data) > MAX_BESIDE:
        text = f"a message has more than {MAX_BESIDE} bytes beside a part of a body"
        raise GrpcError(GrpcStatus.RESOURCE_EXHAUSTED, text)
    try:
        return ProcessingRequest.FromString(data)
    except DecodeError:
        raise GrpcError(GrpcStatus.INVALID_ARGUMENT, "a message is no ProcessingRequest") from None


def _beside_bodies(data: bytes) -> int:
    """Return how many bytes of a message are no part of a body; all, if it is not written as gateways write theirs."""
    at = beside = 0
    for _ in range(MAX_PARTS):
        if at == len(data):
            return beside
        begin = at
        tag, at = _varint(data, at)
        length, at = _varint(data, at)
        if at > len(data) or tag & 7 not in (_NUMBER, _BYTES):
            break
        at += length if tag & 7 == _BYTES else 0
        if tag >> 3 not in _BODIES:
            beside += at - begin
    return len(data)


def _varint(data: bytes, at: int) -> tuple[int, int]:
    """Return a number, and where what follows begins; beyond the data if the number has no end."""
    value = 0
    for place in range(min(_LONGEST, len(data) - at)):
        value |= (data[at + place] & 0x7F) << 7 * place
        if data[at + place] < 0x80:
            return value, at + place + 1
    return 0, len(data) + 1


def fields(headers: HeaderMap) -> dict[bytes, bytes]:
    """Return header fields by name in lower case; of a repeated field the last value, as the router has it."""
    return {header.key.lower().encode(): header.raw_value or header.value.encode() for header in headers.headers}


def repeated(headers: HeaderMap) -> frozenset[bytes]:
    """Return the names of fields that occur more than once, in lower case."""
    seen: set[bytes] = set()
    twice: set[bytes] = set()
    for header in headers.headers:
        name = header.key.lower().encode()
        (twice if name in seen else seen).add(name)
    return frozenset(twice)


def subset(metadata: Metadata) -> frozenset[str] | None:
    """Return the endpoints to which a gateway limits the choice, as a list or in one text; None without a limit."""
    if _SUBSET_HINT not in metadata.filter_metadata:
        return None
    hint = metadata.filter_metadata[_SUBSET_HINT].fields
    if SUBSET not in hint:
        return None
    value = hint[SUBSET]
    texts = [item.string_value for item in value.list_value.values] if value.HasField("list_value") else []
    texts.append(value.string_value)
    return frozenset(part for text in texts for item in text.split(",") if (part := item.strip()))


def served(message: ProcessingRequest) -> str:
    """Return the endpoint that answered, as the gateway reports it with the head of an answer; empty if it does not."""
    metadata = message.metadata_context.filter_metadata
    if _LB in metadata and SERVED in metadata[_LB].fields:
        return metadata[_LB].fields[SERVED].string_value
    if _ATTRIBUTES in message.attributes and _UPSTREAM in message.attributes[_ATTRIBUTES].fields:
        return message.attributes[_ATTRIBUTES].fields[_UPSTREAM].string_value
    return ""


# --- What is sent --------------------------------------------------------------------------------------------


def _mutation(values: Iterable[tuple[str, str | bytes]], remove: Iterable[str] = ()) -> HeaderMutation:
    options = [
        HeaderValueOption(
            header=HeaderValue(key=name, raw_value=value if isinstance(value, bytes) else value.encode()),
            append_action=_OVERWRITE,
        )
        for name, value in values
    ]
    return HeaderMutation(set_headers=options, remove_headers=remove)


def _is_long(remove: tuple[str, ...]) -> bool:
    """Return True if the names, which clients and engines choose, are too long for their message to be cached."""
    return sum(map(len, remove)) > MOST_NAMES


def _metadata(endpoints: str) -> Struct:
    struct = Struct()
    struct.get_or_create_struct(_LB)[DESTINATION] = endpoints
    return struct


def _choice(endpoints: str, remove: tuple[str, ...], more: tuple[tuple[str, bytes], ...]) -> CommonResponse:
    # gateways may choose a route by the destination; by what is left of fields and query they would find none
    is_narrowed = bool(remove) or any(name == PATH for name, _ in more)
    return CommonResponse(
        header_mutation=_mutation([(DESTINATION, endpoints), *more], remove), clear_route_cache=not is_narrowed
    )


def picked(
    endpoints: str,
    remove: tuple[str, ...] = (),
    more: tuple[tuple[str, bytes], ...] = (),
    *,
    once: bool = False,
) -> bytes:
    """Return the answer to a request's headers with its endpoints.

    Args:
        endpoints: `host:port`, or several with commas, in the order in which they are to be tried.
        remove: names of fields that engines do not get.
        more: further fields that engines get.
        once: whether no other request has the same fields, so that its message would only evict others from the cache.
    """
    return (_picked.__wrapped__ if once or _is_long(remove) else _picked)(endpoints, remove, more)


@lru_cache(4096)
def _picked(endpoints: str, remove: tuple[str, ...], more: tuple[tuple[str, bytes], ...]) -> bytes:
    chosen = HeadersResponse(response=_choice(endpoints, remove, more))
    return ProcessingResponse(request_headers=chosen, dynamic_metadata=_metadata(endpoints)).SerializeToString()


def picked_with_body(
    endpoints: str, body: bytes | None, remove: tuple[str, ...] = (), more: tuple[tuple[str, bytes], ...] = ()
) -> bytes:
    """Return the answer to a body that the gateway holds (MODE_BUFFERED); None leaves the body as it is."""
    # Envoy refuses a body whose length differs from `content-length`
    length = (("content-length", b"%d" % len(body)),) if body is not None else ()
    choice = _choice(endpoints, remove, (*more, *length))
    if body is not None:
        choice.body_mutation.body = body
    response = BodyResponse(response=choice)
    return ProcessingResponse(request_body=response, dynamic_metadata=_metadata(endpoints)).SerializeToString()


def _streamed(body: bytes, *, end: bool) -> BodyResponse:
    part = StreamedBodyResponse(body=body, end_of_stream=end)
    return BodyResponse(response=CommonResponse(body_mutation=BodyMutation(streamed_response=part)))


def request_body(body: bytes, *, end: bool) -> Iterator[bytes]:
    """Yield the messages that give a whole body to the engine; `end` is False if trailers follow."""
    view = memoryview(body)
    for at in range(0, len(body) or 1, PIECE):
        last = end and at + PIECE >= len(body)
        part = _streamed(bytes(view[at : at + PIECE]), end=last)
        yield ProcessingResponse(request_body=part).SerializeToString()


def response_body(body: bytes, *, end: bool) -> Iterator[bytes]:
    """Yield the messages that give a part of an answer to the client."""
    if len(body) <= PIECE:
        yield ProcessingResponse(response_body=_streamed(body, end=end)).SerializeToString()
        return
    for at in range(0, len(body), PIECE):
        part = _streamed(body[at : at + PIECE], end=end and at + PIECE >= len(body))
        yield ProcessingResponse(response_body=part).SerializeToString()


def response_headers(values: tuple[tuple[str, str], ...], remove: tuple[str, ...] = ()) -> bytes:
    """Return the answer to the head of an engine's answer, with fields added, and without those that are removed."""
    return (_response_headers.__wrapped__ if _is_long(remove) else _response_headers)(values, remove)


@lru_cache(4096)
def _response_headers(values: tuple[tuple[str, str], ...], remove: tuple[str, ...]) -> bytes:
    head = HeadersResponse(response=CommonResponse(header_mutation=_mutation(values, remove)))
    return ProcessingResponse(response_headers=head).SerializeToString()


def immediate(status: int, headers: Iterable[tuple[bytes, bytes]], body: bytes) -> bytes:
    """Return a whole answer for the client, instead of an engine's."""
    values = [(name.decode(), value) for name, value in headers]
    answer = ImmediateResponse(status=HttpStatus(code=status), headers=_mutation(values), body=body)
    return ProcessingResponse(immediate_response=answer).SerializeToString()


def without_trailers(message: ProcessingRequest) -> bytes:
    """Return the answer to trailers of a request or of an answer, which takes all of them out."""
    if message.HasField("request_trailers"):
        names = [header.key for header in message.request_trailers.trailers.headers]
        return ProcessingResponse(request_trailers=_bare(names)).SerializeToString()
    names = [header.key for header in message.response_trailers.trailers.headers]
    return ProcessingResponse(response_trailers=_bare(names)).SerializeToString()


def _bare(names: list[str]) -> TrailersResponse:
    return TrailersResponse(header_mutation=HeaderMutation(remove_headers=sorted(set(names))) if names else None)


_EMPTY: Mapping[str, ProcessingResponse] = {
    "request_headers": ProcessingResponse(request_headers=HeadersResponse(response=CommonResponse())),
    "request_body": ProcessingResponse(request_body=BodyResponse(response=CommonResponse())),
    "response_body": ProcessingResponse(response_body=BodyResponse(response=CommonResponse())),
    "request_trailers": ProcessingResponse(request_trailers=TrailersResponse()),
    "response_trailers": ProcessingResponse(response_trailers=TrailersResponse()),
}
UNCHANGED = {kind: message.SerializeToString() for kind, message in _EMPTY.items()}
"""Kind of a message → the answer that changes nothing."""
