"""A real Envoy before a picker in this process, as gateways configure it, without Docker."""

import asyncio
import contextlib
import json
import re
import socket
from collections.abc import AsyncIterator, Callable, Sequence
from dataclasses import replace
from pathlib import Path

from promptgroup_contract.access import ANYBODY
from promptgroup_contract.table import RoutingTable
from promptgroup_local.ports import free_ports
from promptgroup_picker.server import Picker
from promptgroup_picker.settings import PickerSettings
from promptgroup_router.feed import table_file
from support.envoy import ENVOY
from support.fakeengine import FakeEngine, engines, until
from support.wire import started, table_of

_EXTENSIONS = "type.googleapis.com/envoy.extensions"
_FULL_DUPLEX = {
    "request_header_mode": "SEND",
    "request_body_mode": "FULL_DUPLEX_STREAMED",
    "request_trailer_mode": "SEND",
    "response_header_mode": "SEND",
    "response_body_mode": "FULL_DUPLEX_STREAMED",
    "response_trailer_mode": "SEND",
}
_WIDE = {"thresholds": [{"max_connections": 40000, "max_pending_requests": 40000, "max_requests": 40000}]}
_HELD = {**_FULL_DUPLEX, "request_body_mode": "BUFFERED", "request_trailer_mode": "SKIP"}
_UNSEEN = {
    **_FULL_DUPLEX,
    "response_header_mode": "SKIP",
    "response_body_mode": "NONE",
    "response_trailer_mode": "SKIP",
}

GUIDE = Path(__file__).parents[2] / "docs" / "how-to" / "gateways.md"
(HELD_TIMEOUT,) = re.findall(r"^message_timeout: (\d+s)$", GUIDE.read_text(), re.MULTILINE)
"""The time limit that the guide names for gateways that hold bodies; the others have Envoy's own, 200 ms."""

_CHECK = {
    "timeout": "1s",
    "interval": "0.1s",
    "no_traffic_interval": "0.1s",
    "unhealthy_threshold": 1,
    "healthy_threshold": 1,
    "grpc_health_check": {"service_name": "envoy.service.ext_proc.v3.ExternalProcessor"},
}


Manage = Callable[[str, dict], None]
"""Changes how a port is configured: it gets the port's name and its connection manager."""


def settings_of(path: Path, **fields: object) -> PickerSettings:
    plain = PickerSettings(
        source=path,
        host="127.0.0.1",
        port=0,
        admin_port=0,
        admin_hosts=(),
        admin_token_file=None,
        health_port=0,
        plaintext=True,
        tls_cert_file=None,
        tls_key_file=None,
        endpoints=1,
        conformance="",
        cache_file=None,
        access=ANYBODY,
        secrets_dir=None,
        issuer_ca=None,
        peers=(),
        peer_port=9094,
        peer_ports=8,
        peer_key_file=None,
        peer_tick=0.02,
        max_body_bytes=2**25,
        body_memory_bytes=2**27,
        max_connections=1000,
        drain_delay=0.0,
        drain_timeout=5.0,
        log_level="INFO",
        log_format="plain",
        access_log=False,
        keep_samples=0,
        pass_paths=(),
    )
    return replace(plain, **fields)


@contextlib.asynccontextmanager
async def picking(folder: Path, served: RoutingTable, **fields: object) -> AsyncIterator[Picker]:
    """A picker with this table."""
    path = folder / "picker-table.json"
    table_file.write(path, served)
    async with started(Picker(settings_of(path, **fields))) as picker:
        yield picker


USAGE = (
    b'{"choices":[],"usage":{"prompt_tokens":40,"completion_tokens":3,"prompt_tokens_details":{"cached_tokens":30}}}'
)


async def counted(call) -> None:
    """Answers with token counts, streamed where it is asked to."""
    if not call.json.get("stream"):
        call.answer(USAGE)
        return
    call.begin_stream()
    for text in ("Hel", "lo"):
        call.chunk(b'data: {"choices":[{"delta":{"content":"%b"}}]}\n\n' % text.encode())
    call.chunk(b"data: " + USAGE + b"\n\n")
    call.chunk(b"data: [DONE]\n\n")
    call.send(b"0\r\n\r\n")


@contextlib.asynccontextmanager
async def behind(
    folder: Path, behave=counted, count: int = 2, *, manage: Manage | None = None, **fields: object
) -> AsyncIterator[tuple["Gateway", Picker, list[FakeEngine]]]:
    """Envoy, a picker and engines; `subset` is called with the engines' addresses, other fields are settings."""
    async with engines(count, *[behave] * count) as found:
        addresses = [each.address for each in found]
        tls = not fields.get("plaintext", True)
        subset = fields.pop("subset", lambda _: ())(addresses)
        async with (
            picking(folder, table_of(*addresses), **fields) as picker,
            gateway(folder, [picker.port], addresses, tls=tls, subset=subset, manage=manage) as envoy,
        ):
            yield envoy, picker, found


async def at_rest(picker: Picker) -> None:
    """Wait until a picker has no call, no load and no body: a gateway ends its stream after it has sent the answer."""
    await until(
        lambda: not picker._calls.open and not picker.core.state.balancer.placed.loads and not picker.core.bodies.used,
        "the calls to end, and what they held to be freed",
    )


class Gateway:
    """A running Envoy: a port for each way to configure it."""

    def __init__(self, strict: int, lenient: int, held: int, unseen: int, admin: int) -> None:
        self.strict = strict
        """ORIGINAL_DST, and no answer without the picker."""
        self.lenient = lenient
        """override_host over the pool, a retry, and round robin without the picker."""
        self.held = held
        """As lenient, but Envoy holds the request's body, so that it can do without the picker at any moment."""
        self.unseen = unseen
        """As strict, but the picker does not see the answer."""
        self.admin = admin


@contextlib.asynccontextmanager
async def gateway(
    folder: Path,
    pickers: Sequence[int],
    pool: Sequence[str],
    *,
    tls: bool = False,
    subset: Sequence[str] = (),
    checks: bool = False,
    manage: Manage | None = None,
) -> AsyncIterator[Gateway]:
    """An Envoy before these engines.

    Args:
        folder: where its configuration and its log are written.
        pickers: ports of the pickers.
        pool: `host:port` of the engines.
        tls: whether it speaks TLS to the pickers.
        subset: the endpoints that it tells the picker to choose from.
        checks: whether it checks ten times a second which pickers are ready, as it would learn it from Kubernetes.
        manage: changes how ports are configured.
    """
    found = Gateway(*free_ports(5))
    path, log = folder / "envoy.json", folder / "envoy.log"
    configuration = _configuration(found, pickers, pool, tls=tls, subset=subset, checks=checks)
    for each in configuration["static_resources"]["listeners"] if manage is not None else ():
        manage(each["name"], each["filter_chains"][0]["filters"][0]["typed_config"])
    path.write_text(json.dumps(configuration))
    with log.open("wb") as out:
        process = await asyncio.create_subprocess_exec(
            *(ENVOY or "envoy", "-c", str(path), "--concurrency", "1", "--use-dynamic-base-id", "-l", "warning"),
            stdout=out,
            stderr=out,
        )
        try:
            await until(lambda: process.returncode is not None or _listens(found), "Envoy to listen", 15.0)
            assert process.returncode is None, log.read_text()
            yield found
        finally:
            with contextlib.suppress(ProcessLookupError):
                process.kill()
            await process.wait()


def _listens(found: Gateway) -> bool:
    for port in (found.strict, found.lenient, found.held, found.unseen):
        with socket.socket() as probe:
            if probe.connect_ex(("127.0.0.1", port)):
                return False
    return True


def _configuration(
    found: Gateway, pickers: Sequence[int], pool: Sequence[str], *, tls: bool, subset: Sequence[str], checks: bool
) -> dict:
    retries = {"retry_on": "connect-failure,refused-stream,reset", "num_retries": 2}
    listeners = [
        _listener("strict", found.strict, {"cluster": "chosen"}, _FULL_DUPLEX, subset, opens=False),
        _listener("lenient", found.lenient, {"cluster": "pool", "retry_policy": retries}, _FULL_DUPLEX, subset),
        _listener("held", found.held, {"cluster": "pool", "retry_policy": retries}, _HELD, subset),
        _listener("unseen", found.unseen, {"cluster": "chosen"}, _UNSEEN, subset, opens=False),
    ]
    header = {"use_http_header": True, "http_header_name": "x-gateway-destination-endpoint"}
    chosen = {"name": "chosen", "type": "ORIGINAL_DST", "lb_policy": "CLUSTER_PROVIDED", "connect_timeout": "2s"}
    http2 = f"{_EXTENSIONS}.upstreams.http.v3.HttpProtocolOptions"
    picker = {
        **_static("picker", [f"127.0.0.1:{port}" for port in pickers]),
        "common_lb_config": {"healthy_panic_threshold": {"value": 0}},
        "typed_extension_protocol_options": {
            "envoy.extensions.upstreams.http.v3.HttpProtocolOptions": {
                "@type": http2,
                "explicit_http_config": {"http2_protocol_options": {"initial_stream_window_size": 65536}},
            }
        },
    }
    if tls:
        picker["transport_socket"] = {
            "name": "envoy.transport_sockets.tls",
            "typed_config": {"@type": f"{_EXTENSIONS}.transport_sockets.tls.v3.UpstreamTlsContext"},
        }
    if checks:
        picker["health_checks"] = [_CHECK]
    return {
        "admin": {"address": _address(found.admin)},
        "static_resources": {
            "listeners": listeners,
            "clusters": [
                {**chosen, "original_dst_lb_config": header, "circuit_breakers": _WIDE},
                _overridden("pool", pool),
                picker,
            ],
        },
    }


def _address(port: int, host: str = "127.0.0.1") -> dict:
    return {"socket_address": {"address": host, "port_value": port}}


def _static(name: str, addresses: Sequence[str]) -> dict:
    endpoints = [{"endpoint": {"address": _address(int(each.rpartition(":")[2]))}} for each in addresses]
    return {
        "name": name,
        "type": "STATIC",
        "connect_timeout": "2s",
        "circuit_breakers": _WIDE,
        "load_assignment": {"cluster_name": name, "endpoints": [{"lb_endpoints": endpoints}]},
    }


def _overridden(name: str, addresses: Sequence[str]) -> dict:
    policies = f"{_EXTENSIONS}.load_balancing_policies"
    robin = {
        "name": "envoy.load_balancing_policies.round_robin",
        "typed_config": {"@type": f"{policies}.round_robin.v3.RoundRobin"},
    }
    override = {
        "@type": f"{policies}.override_host.v3.OverrideHost",
        "override_host_sources": [
            {"metadata": {"key": "envoy.lb", "path": [{"key": "x-gateway-destination-endpoint"}]}}
        ],
        "fallback_policy": {"policies": [{"typed_extension_config": robin}]},
    }
    policy = {"name": "envoy.load_balancing_policies.override_host", "typed_config": override}
    return {**_static(name, addresses), "load_balancing_policy": {"policies": [{"typed_extension_config": policy}]}}


def _listener(name: str, port: int, route: dict, mode: dict, subset: Sequence[str], *, opens: bool = True) -> dict:
    filters = [
        _ext_proc(mode, opens=opens),
        http_filter("router", {"suppress_envoy_headers": True}, "router.v3.Router"),
    ]
    if subset:
        value = {"x-gateway-destination-endpoint-subset": list(subset)}
        hint = {"metadata": [{"metadata_namespace": "envoy.lb.subset_hint", "value": value}]}
        filters.insert(0, http_filter("set_metadata", hint, "set_metadata.v3.Config"))
    forever = {"timeout": "86400s", "idle_timeout": "86400s"}
    hosts = [{"name": "all", "domains": ["*"], "routes": [{"match": {"prefix": "/"}, "route": {**route, **forever}}]}]
    manager = {
        "@type": f"{_EXTENSIONS}.filters.network.http_connection_manager.v3.HttpConnectionManager",
        "stat_prefix": name,
        "route_config": {"virtual_hosts": hosts},
        "http_filters": filters,
    }
    chain = [{"name": "envoy.filters.network.http_connection_manager", "typed_config": manager}]
    held = {"per_connection_buffer_limit_bytes": 2**25} if mode is _HELD else {}
    return {"name": name, "address": _address(port), "filter_chains": [{"filters": chain}], **held}


def http_filter(name: str, values: dict, kind: str) -> dict:
    """A filter of requests, such as `rbac`, whose settings have the type `kind`."""
    typed = {"@type": f"{_EXTENSIONS}.filters.http.{kind}", **values}
    return {"name": f"envoy.filters.http.{name}", "typed_config": typed}


def _ext_proc(mode: dict, *, opens: bool) -> dict:
    values = {
        "grpc_service": {"envoy_grpc": {"cluster_name": "picker", "authority": "localhost"}},
        "failure_mode_allow": opens,
        "processing_mode": mode,
        "response_attributes": ["upstream.address"],
        "metadata_options": {
            "forwarding_namespaces": {"untyped": ["envoy.lb.subset_hint"]},
            "receiving_namespaces": {"untyped": ["envoy.lb"]},
        },
    }
    if mode is _HELD:
        values["message_timeout"] = HELD_TIMEOUT
    return http_filter("ext_proc", values, "ext_proc.v3.ExternalProcessor")
