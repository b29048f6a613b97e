"""The head of a gateway's request: its header fields, and who sends it."""

from promptgroup_picker.extproc import messages
from promptgroup_picker.extproc.shown_answer import path_of
from promptgroup_picker.stubs.ext_proc_pb2 import ProcessingRequest
from promptgroup_router.apis.endpoints import Endpoint, form_of
from promptgroup_router.base.errors import ApiError
from promptgroup_router.decision.arrival import asks_of_digest, endpoint_of
from promptgroup_router.decision.engine_request import engine_target
from promptgroup_router.http11.http1 import Headers
from promptgroup_router.http11.trace_context import HEADER as TRACEPARENT
from promptgroup_router.proxy.response import REQUEST_ID

MAX_FIELDS = 1000
"""Most header fields of a request: gateways accept a hundred unless they are configured otherwise."""
FIELD_BYTES = 256
"""Memory that a header field takes beside its bytes."""
_TARGET = messages.PATH.encode()


class CallHead:
    """The head of a request; without fields until it has arrived."""

    __slots__ = ("_peer", "_repeated", "arrived", "endpoint", "fields", "subset")

    def __init__(self, peer: str) -> None:
        """Begin without fields.

        Args:
            peer: the gateway's address.
        """
        self._peer = peer
        self.arrived = False
        self.fields: dict[bytes, bytes] = {}
        """Names in lower case → values."""
        self._repeated: frozenset[bytes] = frozenset()
        """Names of header fields that the request has more than once."""
        self.subset: frozenset[str] | None = None
        """The endpoints that the gateway allows; None for all."""
        self.endpoint: Endpoint = endpoint_of(b"")

    def arrive(self, message: ProcessingRequest) -> int:
        """Record that the head has arrived. Return the bytes of memory that it takes.

        Raises:
            ApiError: 431: it has too many fields.
        """
        self.arrived = True
        count = len(message.request_headers.headers.headers)
        if count > MAX_FIELDS:
            text = f"the request has {count} header fields, at most {MAX_FIELDS}: send less"
            raise ApiError(431, text, code="headers_too_large")
        return message.ByteSize() + FIELD_BYTES * count

    def read(self, message: ProcessingRequest, pass_paths: frozenset[bytes]) -> None:
        """Read the fields."""
        headers = message.request_headers.headers
        self.fields = messages.fields(headers)
        if len(self.fields) < len(headers.headers):
            self._repeated = messages.repeated(headers)
        self.subset = messages.subset(message.metadata_context)
        self.endpoint = endpoint_of(path_of(self.fields), pass_paths)

    # --- Who sends the request ---------------------------------------------------------------------------------------

    def peer_address(self) -> str:
        """Return the gateway's address: it is the gateway that a group trusts to name callers in a header."""
        return self._peer

    def repeats(self, name: bytes) -> bool:
        """Return True if the request has a header field more than once."""
        return name in self._repeated

    def known_key(self) -> object:
        """Return None: a gateway's stream has one request."""
        return None

    def remember(self, key: object) -> None:
        """Keep nothing."""

    # --- What its fields say -----------------------------------------------------------------------------------------

    @property
    def method(self) -> bytes:
        """The method; empty without one."""
        return self.fields.get(b":method", b"")

    @property
    def request_id(self) -> bytes:
        """The id of the request; empty without one."""
        return self.fields.get(REQUEST_ID, b"")

    @property
    def traceparent(self) -> bytes:
        """The trace that the request is a part of; empty without one."""
        return self.fields.get(TRACEPARENT, b"")

    @staticmethod
    def trace_field(traceparent: bytes) -> tuple[bytes, bytes]:
        """Return the header field that tells an engine which trace the request is a part of."""
        return TRACEPARENT, traceparent

    @property
    def asks_diagnosis(self) -> bool:
        """True if the client requests a cache diagnosis by a header."""
        return asks_of_digest(self.fields)

    def changed_target(self) -> bytes:
        """Return the path and the query that the engine gets; empty if they are those that the client sent."""
        requested = self.fields.get(_TARGET, b"")
        path, _, query = requested.partition(b"?")
        target = engine_target(self.endpoint, path, query)
        return target if target != requested else b""

    def refusal(self, error: ApiError) -> tuple[int, Headers, bytes]:
        """Return status, header fields and body of an error in the form of the API that the request uses."""
        request_id = self.request_id
        form = form_of(path_of(self.fields), self.fields)
        status, body = form.refuse(error, request_id)
        ids = [(name, request_id) for name in form.id_fields[1:]] if request_id else []
        return status, [*error.headers(), *ids], body
