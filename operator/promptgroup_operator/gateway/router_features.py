"""Decides which fields of a group have no effect on requests that come by a gateway.

A picker names a replica and relays nothing: what a router does because it holds the request and its answer, nobody does
for a request that a gateway relays. All other fields hold there too, since a picker decides by the router's own code.
"""

from collections.abc import Iterator

from promptgroup_operator.api.access import asks_callers
from promptgroup_operator.api.gateway import FailureMode
from promptgroup_operator.api.prompt_group import PromptGroupSpec
from promptgroup_operator.api.responses import ResponseCacheMode
from promptgroup_operator.gateway.inference_pool import GatewayVerdict
from promptgroup_operator.world.snapshot import Host


def decide(spec: PromptGroupSpec, host: Host | None = None) -> GatewayVerdict | None:
    """Return condition GatewayLimits; None for a group without a gateway.

    Args:
        spec: of the group.
        host: the host of a guest, whose spec decides how gateways reach the replicas.
    """
    if spec.gateway is None and (host is None or host.gateway is None):
        return None
    result = [f"{field} ({instead})" for field, instead in (*_of_guests(spec, host), *_without_effect(spec))]
    if not result:
        return GatewayVerdict(False, "AllFieldsHold", "all that the group declares holds behind a gateway, too")
    text = "; ".join(result)
    return GatewayVerdict(True, "FeaturesOfRouter", f"without effect on requests that come by a gateway: {text}")


def _of_guests(spec: PromptGroupSpec, host: Host | None) -> Iterator[tuple[str, str]]:
    """Yield the fields of a guest that need a picker: its host may let gateways continue without one."""
    if host is not None and host.gateway is FailureMode.FAIL_OPEN and asks_callers(spec.access):
        text = f"while no picker answers, as spec.gateway.failureMode of {host.name} is FailOpen: set FailClose there"
        yield "spec.access", text


def _without_effect(spec: PromptGroupSpec) -> Iterator[tuple[str, str]]:
    """Yield each field that is set and has no effect, with its remedy."""
    if spec.responses.cache is not ResponseCacheMode.OFF:
        yield "spec.responses", "send requests that are to be answered from the cache to the routers' Service"
    if spec.routing.first_token_timeout is not None:
        yield "spec.routing.firstTokenTimeout", "set a timeout of the gateway's route"
    if spec.routing.idle_timeout is not None:
        yield "spec.routing.idleTimeout", "set an idle timeout of the gateway"
    if spec.routing.keep_alive_interval is not None:
        yield "spec.routing.keepAliveInterval", "send requests whose clients need keep-alives to the routers' Service"
    if spec.routing.wake_timeout is not None or (spec.sizing is not None and spec.sizing.min_replicas == 0):
        field = "spec.routing.wakeTimeout" if spec.routing.wake_timeout is not None else "spec.sizing.minReplicas: 0"
        yield field, "the gateway ends the wait after its own timeout, and the request wakes the group all the same"
    if spec.routing.resume.max:
        yield "spec.routing.resume", "send streams that are to outlive their replica to the routers' Service"
    if spec.engine.tls is not None:
        yield "spec.engine.tls", "give the gateway a BackendTLSPolicy, by which it speaks TLS to engines"
