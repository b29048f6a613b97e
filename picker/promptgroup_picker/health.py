"""Answers gRPC's health checks (`grpc.health.v1.Health/Check`)."""

from google.protobuf.message import DecodeError

from promptgroup_picker.http2.grpc_messages import GrpcError, GrpcStatus
from promptgroup_picker.http2.stream import Stream
from promptgroup_picker.stubs.ext_proc_pb2 import HealthCheckRequest, HealthCheckResponse
from promptgroup_router.routing.state import RouterState

CHECK = "/grpc.health.v1.Health/Check"
ALIVE = ("liveness",)
READY = ("", "readiness", "envoy.service.ext_proc.v3.ExternalProcessor", "inference-extension")
"""Services that report whether requests are accepted; the last is the one that the Inference Extension's manifests
name."""
_SERVING, _NOT_SERVING = 1, 2


class HealthCheck:
    """One check."""

    def __init__(self, state: RouterState, stream: Stream) -> None:
        self._state = state
        self._stream = stream
        stream.pays = False  # a few a second are requested, and they cost as much as their frames

    def begun(self, size: int) -> None:
        """Refuse a message that no check has.

        Raises:
            GrpcError: always.
        """
        raise GrpcError(GrpcStatus.RESOURCE_EXHAUSTED, f"a HealthCheckRequest has {size} bytes")

    def message(self, data: bytes) -> None:
        """Answer.

        Raises:
            GrpcError: there is no such service.
        """
        try:
            service = HealthCheckRequest.FromString(data).service
        except DecodeError:
            raise GrpcError(GrpcStatus.INVALID_ARGUMENT, "the message is no HealthCheckRequest") from None
        if service not in (*ALIVE, *READY):
            services = ", ".join(name for name in (*ALIVE, *READY) if name)
            raise GrpcError(GrpcStatus.NOT_FOUND, f"there is no service {service[:100]!r}: ask for one of {services}")
        serving = service in ALIVE or (self._state.loaded and not self._state.draining)
        self._stream.send(HealthCheckResponse(status=_SERVING if serving else _NOT_SERVING).SerializeToString())
        self._stream.finish()

    def half_closed(self) -> None:
        """End a call without a message."""
        self._stream.finish()

    def lost(self) -> None:
        """Do nothing: a check holds nothing."""
