"""Parses flags and environment into one frozen Settings."""

import argparse
import ipaddress
import os
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path

from promptgroup_router.contract import names

SERVICE_ACCOUNT_DIR = Path("/var/run/secrets/kubernetes.io/serviceaccount")
"""Folder in which Kubernetes mounts a pod's token, namespace and CA."""
PORT_PEERS = 9094
"""UDP port of datagrams between routers."""
MAX_PEER_PORTS = 64
"""Most router processes on one machine: more would spend their time on heartbeats."""
MAX_WORKERS = MAX_PEER_PORTS - 1
"""Most workers: each has a port of the range, and one that replaces another needs one more."""
MAX_BODY_BYTES = 16 * 2**20
"""Four times a prompt of a million tokens, or some images. A body takes up to 8 times its size while it is parsed:
twice as bytes, four times as text in which one character needs four bytes, and twice for its structure."""
BUFFER_BYTES = 96 * 2**20
"""Most bytes that all connections buffer beside bodies: half heads, requests sent ahead, answers that are not read."""
BODY_MEMORY_BYTES = 256 * 2**20
"""With MAX_BODY_BYTES this fits a pod with 1 GiB: bodies count twice, since some are rewritten for the engine."""


@dataclass(frozen=True, slots=True)
class ApiServerAddress:
    """The API server from which PromptRoutes are read."""

    host: str
    port: int
    service_account_dir: Path
    namespaces: tuple[str, ...]
    allowed_networks: tuple[ipaddress.IPv4Network | ipaddress.IPv6Network, ...] = ()
    """Networks whose addresses are taken from PromptRoutes although no pod of a cluster has them."""


@dataclass(frozen=True, slots=True)
class PeerName:
    """A name under which other routers are found."""

    host: str
    """A DNS name, which stands for all its addresses, or an address."""
    port: int | None = None
    """None for all ports of the range."""


@dataclass(frozen=True, slots=True)
class Settings:
    """The router's settings. Every field but `source` is a flag, and `PROMPTGROUP_ROUTER_<FLAG>` in the environment."""

    source: Path | ApiServerAddress
    """A table file or an API server."""
    host: str
    port: int
    admin_port: int
    reuse_port: bool
    workers: int | None
    """None for as many as the process surely has cores and memory for."""
    cache_file: Path | None
    peers: tuple[PeerName, ...]
    peer_port: int
    peer_ports: int
    peer_key_file: Path | None
    peer_tick: float
    max_body_bytes: int
    body_memory_bytes: int
    max_connections: int
    request_timeout: float
    connect_timeout: float
    drain_delay: float
    drain_timeout: float
    log_level: str
    log_format: str


def parse(arguments: Sequence[str], environment: Mapping[str, str] = os.environ) -> Settings:
    """Parse the command line, with defaults from the environment.

    Raises:
        SystemExit: after help or an error was printed; errors name the flag, the value and the way out.
    """
    parser = _parser(environment)
    given = parser.parse_args(arguments)
    for flag in ("port", "admin_port"):
        if not 0 <= getattr(given, flag) <= 65535:
            parser.error(f"--{flag.replace('_', '-')} is {getattr(given, flag)}, expected 0 to 65535")
    for flag in ("max_body_bytes", "body_memory_bytes", "max_connections", "request_timeout", "connect_timeout"):
        if not getattr(given, flag) > 0:
            parser.error(f"--{flag.replace('_', '-')} is {getattr(given, flag)}, expected more than 0")
    for flag in ("drain_delay", "drain_timeout"):
        value = getattr(given, flag)
        if value is not None and not value >= 0:
            parser.error(f"--{flag.replace('_', '-')} is {value}, expected 0 or more")
    try:
        source = _source(given, environment)
        peers = _peers(given)
        _check_workers(given, peers)
    except ValueError as error:
        parser.error(str(error))
    drain_delay = given.drain_delay
    if drain_delay is None:
        drain_delay = 5.0 if isinstance(source, ApiServerAddress) else 0.0
    return Settings(
        source=source,
        host=given.host,
        port=given.port,
        admin_port=given.admin_port,
        reuse_port=given.reuse_port,
        workers=given.workers,
        cache_file=given.cache_file,
        peers=peers,
        peer_port=given.peer_port,
        peer_ports=given.peer_ports,
        peer_key_file=given.peer_key_file,
        peer_tick=given.peer_tick,
        max_body_bytes=given.max_body_bytes,
        body_memory_bytes=given.body_memory_bytes,
        max_connections=given.max_connections,
        request_timeout=given.request_timeout,
        connect_timeout=given.connect_timeout,
        drain_delay=drain_delay,
        drain_timeout=given.drain_timeout,
        log_level=given.log_level,
        log_format=given.log_format,
    )


def _source(given: argparse.Namespace, environment: Mapping[str, str]) -> Path | ApiServerAddress:
    if given.table is not None:
        if given.namespaces:
            raise ValueError(
                "--table and --namespaces are both given, but a table file names its own namespaces: leave one out"
            )
        return Path(given.table)
    host, port = environment.get("KUBERNETES_SERVICE_HOST", ""), environment.get("KUBERNETES_SERVICE_PORT", "443")
    if not host:
        raise ValueError(
            "--table is not given, and this is not a pod (KUBERNETES_SERVICE_HOST is not set): give --table FILE"
        )
    if not port.isdecimal():
        raise ValueError(f"KUBERNETES_SERVICE_PORT is {port!r}, expected a number")
    folder: Path = given.service_account_dir
    namespaces = tuple(dict.fromkeys(part for name in given.namespaces.split(",") if (part := name.strip())))
    if not namespaces:
        try:
            namespaces = ((folder / "namespace").read_text().strip(),)
        except OSError as error:
            raise ValueError(
                f"--namespaces is not given and {error.filename} cannot be read: {error.strerror}"
            ) from None
    return ApiServerAddress(host, int(port), folder, namespaces, _networks(given.allow_networks))


def _networks(text: str) -> tuple[ipaddress.IPv4Network | ipaddress.IPv6Network, ...]:
    try:
        return tuple(ipaddress.ip_network(part) for each in text.split(",") if (part := each.strip()))
    except ValueError as error:
        raise ValueError(f"--allow-networks is {text!r}, expected networks such as 127.64.0.0/10: {error}") from None


def _peers(given: argparse.Namespace) -> tuple[PeerName, ...]:
    if not 1 <= given.peer_ports <= MAX_PEER_PORTS:
        raise ValueError(f"--peer-ports is {given.peer_ports}, expected 1 to {MAX_PEER_PORTS}")
    last = 65536 - given.peer_ports
    if not 1 <= given.peer_port <= last:
        raise ValueError(f"--peer-port is {given.peer_port}, expected 1 to {last} with --peer-ports {given.peer_ports}")
    if not 0.01 <= given.peer_tick <= 1:
        raise ValueError(f"--peer-tick is {given.peer_tick}, expected 0.01 to 1")
    peers = tuple(dict.fromkeys(_peer(part) for name in given.peers.split(",") if (part := name.strip())))
    if peers and given.peer_key_file is None:
        raise ValueError("--peers is given without --peer-key-file: give the file with the key that all routers share")
    if given.peer_key_file is not None and not peers:
        raise ValueError("--peer-key-file is given without --peers: give the names of the other routers")
    return peers


def _check_workers(given: argparse.Namespace, peers: tuple[PeerName, ...]) -> None:
    workers = given.workers
    if workers is None:
        return
    if not 1 <= workers <= MAX_WORKERS:
        raise ValueError(f"--workers is {workers}, expected 1 to {MAX_WORKERS}")
    if peers and workers > 1 and workers >= given.peer_ports:
        raise ValueError(
            f"--workers is {workers}, but --peer-ports is {given.peer_ports}: each worker needs a port of the range, "
            f"and one is for a worker that replaces another; give --peer-ports {workers + 1} or more, to all routers"
        )


def _peer(name: str) -> PeerName:
    """Parse `host`, `host:port`, `[v6]` or `[v6]:port`; a bare IPv6 address is a host."""
    host, _, port = name.rpartition(":") if name.count(":") == 1 or "]:" in name else (name, "", "")
    host = host.removeprefix("[").removesuffix("]")
    if not host or set(host) & set("[]/ "):
        raise ValueError(f"--peers has {name!r}, expected HOST or HOST:PORT")
    if not port and not name.endswith(":"):
        return PeerName(host)
    if not (port.isascii() and port.isdecimal() and 1 <= int(port) <= 65535):
        raise ValueError(f"--peers has {name!r}, whose port is {port!r}, expected 1 to 65535")
    return PeerName(host, int(port))


def _parser(environment: Mapping[str, str]) -> argparse.ArgumentParser:
    def default(flag: str, value: str | None) -> str | None:
        return environment.get(f"PROMPTGROUP_ROUTER_{flag.upper().replace('-', '_')}", value)

    def add(group: argparse._ArgumentGroup, flag: str, value: str | None, **how: object) -> None:
        group.add_argument(f"--{flag}", default=default(flag, value), **how)  # type: ignore[arg-type]

    parser = argparse.ArgumentParser(
        prog="promptgroup-router",
        description="Sends each LLM request to a replica that is warm for its prompt. Every flag can be set as "
        "PROMPTGROUP_ROUTER_<FLAG> in the environment, such as PROMPTGROUP_ROUTER_ADMIN_PORT=9090.",
        epilog="Try it without Kubernetes: promptgroup-router --table table.json",
    )
    table = parser.add_argument_group("routing table, from a file or (in a pod) from PromptRoutes")
    add(table, "table", None, metavar="FILE", help="read the table from this JSON file, and again whenever it changes")
    add(table, "namespaces", "", metavar="A,B", help="serve the PromptGroups of these namespaces (default: the pod's)")
    help_text = (
        "take addresses of replicas in these networks, too: others that are loopback, link-local or a cloud's metadata "
        "service are refused (default: none)"
    )
    add(table, "allow-networks", "", metavar="NET,NET", help=help_text)
    folder = str(SERVICE_ACCOUNT_DIR)
    add(
        table,
        "service-account-dir",
        folder,
        type=Path,
        metavar="DIR",
        help="folder with credentials (default: %(default)s)",
    )
    add(
        table, "cache-file", None, type=Path, metavar="PATH", help="keep the last good table in this file, for restarts"
    )
    listen = parser.add_argument_group("listening")
    add(listen, "host", "0.0.0.0", help="address of both ports (default: %(default)s)")  # noqa: S104 - a server in a pod
    add(listen, "port", str(names.PORT_ROUTER), type=int, help="port for requests (default: %(default)s)")
    port = str(names.PORT_ROUTER_ADMIN)
    add(listen, "admin-port", port, type=int, help="port for health, metrics and the table (default: %(default)s)")
    listen.add_argument(
        "--reuse-port",
        action="store_true",
        default=default("reuse-port", "") in ("1", "true"),
        help="share the port with other router processes on this machine (SO_REUSEPORT)",
    )
    help_text = (
        "processes that serve the port (default: whole cores of the CPU limit or of the affinity, as far as the memory "
        "limit has room, at most 8; 1 without either)"
    )
    add(listen, "workers", None, type=int, metavar="N", help=help_text)
    peers = parser.add_argument_group("other routers, which exchange placements of sessions and loads over UDP")
    add(peers, "peers", "", metavar="A,B", help="HOST (all its addresses) or HOST:PORT of the routers, itself included")
    help_text = "file with the key that they share, read again when it changes; without a key nothing is exchanged"
    add(peers, "peer-key-file", None, type=Path, metavar="FILE", help=help_text)
    add(peers, "peer-port", str(PORT_PEERS), type=int, help="first port of the range (default: %(default)s)")
    help_text = (
        "number of ports in the range; a process takes the first that is free on its machine (default: %(default)s)"
    )
    add(peers, "peer-ports", "8", type=int, metavar="N", help=help_text)
    help_text = "seconds between datagrams, 0.01 to 1 (default: %(default)s)"
    add(peers, "peer-tick", "0.05", type=float, metavar="S", help=help_text)
    limits = parser.add_argument_group("limits, times in seconds")
    size: dict[str, object] = {"type": int, "metavar": "N"}
    help_text = "largest request body (default: %(default)s)"
    add(limits, "max-body-bytes", str(MAX_BODY_BYTES), **size, help=help_text)
    help_text = "all request bodies together; the router needs twice that, 8 times --max-body-bytes, and 256 MiB "
    add(limits, "body-memory-bytes", str(BODY_MEMORY_BYTES), **size, help=help_text + "(default: %(default)s)")
    help_text = "client connections; more are answered with 503 (default: %(default)s)"
    add(limits, "max-connections", "10000", **size, help=help_text)
    seconds: dict[str, object] = {"type": float, "metavar": "S"}
    add(
        limits,
        "request-timeout",
        "600",
        **seconds,
        help="from the request to the end of its answer (default: %(default)s)",
    )
    add(limits, "connect-timeout", "2", **seconds, help="to open a connection to an engine (default: %(default)s)")
    help_text = "time to go on accepting after SIGTERM (default: 5 in Kubernetes, 0 with --table)"
    add(limits, "drain-delay", None, **seconds, help=help_text)
    add(
        limits,
        "drain-timeout",
        "300",
        **seconds,
        help="time for running requests to end after that (default: %(default)s)",
    )
    log = parser.add_argument_group("logging, to standard error")
    levels = _one_of("DEBUG", "INFO", "WARNING", "ERROR")
    add(
        log,
        "log-level",
        "INFO",
        type=levels,
        metavar="LEVEL",
        help="least level to log; DEBUG logs each decision (default: %(default)s)",
    )
    forms = _one_of("plain", "json")
    add(log, "log-format", "plain", type=forms, metavar="FORM", help="plain or json (default: %(default)s)")
    return parser


def _one_of(*choices: str) -> Callable[[str], str]:
    """Return a type for a flag: argparse does not check its own `choices` for defaults, such as the environment's."""

    def check(value: str) -> str:
        if value not in choices:
            raise argparse.ArgumentTypeError(f"{value!r}, expected one of {', '.join(choices)}")
        return value

    return check
