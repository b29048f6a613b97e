"""The settings that every process has which routes, as flags: where the table comes from, peers, limits, logs."""

import argparse
import ipaddress
import re
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import orjson

from promptgroup_contract import names
from promptgroup_contract.access import ANYBODY, Access
from promptgroup_contract.command_line import Parser
from promptgroup_contract.encoding import decode_access
from promptgroup_contract.table import TableError
from promptgroup_router import __version__

SERVICE_ACCOUNT_DIR = Path("/var/run/secrets/kubernetes.io/serviceaccount")
"""Folder in which Kubernetes mounts a pod's token, namespace and CA."""
PORT_PEERS = 9094
"""UDP port of datagrams between routers."""
MAX_PEER_PORTS = 64
"""Most router processes on one machine: more would spend their time on heartbeats."""
MAX_BODY_BYTES = 16 * 2**20
"""Four times a prompt of a million tokens, or some images. A body takes up to 8 times its size while it is parsed:
twice as bytes, four times as text in which one character needs four bytes, and twice for its structure."""
BUFFER_BYTES = 96 * 2**20
"""Most bytes that all connections buffer beside bodies: half heads, requests sent ahead, answers that are not read."""
BODY_MEMORY_BYTES = 256 * 2**20
"""With MAX_BODY_BYTES this fits a pod with 1 GiB: bodies count twice, since some are rewritten for the engine."""
MAX_SAMPLE_BYTES = 65536
"""Most bytes of a sample: with all 256 stored prefixes they are 16 MiB."""
MAX_PASS_PATHS = 64
"""Most paths of `--pass-paths`."""
_PATH = re.compile(r"/[A-Za-z0-9._~/-]{1,255}")
MAX_ACCESS_BYTES = 65536
"""Most bytes of the file of `--access-file`."""


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
    """A DNS name that resolves to the other routers."""

    host: str
    """A DNS name, which stands for all its addresses, or an address."""
    port: int | None = None
    """None for all ports of the range."""


@dataclass(frozen=True, slots=True)
class CoreSettings:
    """The settings that router and picker have in common. Every field but `source` is a flag."""

    source: Path | ApiServerAddress
    """A table file or an API server."""
    host: str
    port: int
    admin_port: int
    admin_hosts: tuple[str, ...]
    """More names, in lower case, by which the admin port may be called."""
    admin_token_file: Path | None
    """The token for changes of state."""
    cache_file: Path | None
    access: Access
    """The access of groups that have none of their own."""
    secrets_dir: Path | None
    issuer_ca: Path | None
    peers: tuple[PeerName, ...]
    peer_port: int
    peer_ports: int
    peer_key_file: Path | None
    peer_tick: float
    max_body_bytes: int
    body_memory_bytes: int
    max_connections: int
    drain_delay: float
    drain_timeout: float
    log_level: str
    log_format: str
    access_log: bool
    """True to log a line of JSON for each request."""
    pass_paths: tuple[str, ...]
    """Paths that are served beside those that are listed."""
    keep_samples: int
    """Most bytes of text that are stored of each prompt that no group declares; 0 for none."""


class FlagParser:
    """A parser whose flags have defaults in the environment, such as PROMPTGROUP_ROUTER_ADMIN_PORT."""

    def __init__(
        self, program: str, prefix: str, environment: Mapping[str, str], *, description: str, epilog: str
    ) -> None:
        self._prefix = prefix
        self._environment = environment
        self.parser = Parser(
            prog=program,
            description=f"{description} Every flag can be set as {prefix}<FLAG> in the environment, such as "
            f"{prefix}ADMIN_PORT=9090.",
            epilog=epilog,
        )
        self.parser.add_argument("--version", action="version", version=f"{program} {__version__}")

    def group(self, title: str) -> argparse._ArgumentGroup:
        """Return a new group of flags."""
        return self.parser.add_argument_group(title)

    def default(self, flag: str, value: str | None) -> str | None:
        """Return what the environment says of a flag, or else the value."""
        return self._environment.get(f"{self._prefix}{flag.upper().replace('-', '_')}", value)

    def add(self, group: argparse._ArgumentGroup, flag: str, value: str | None, **how: object) -> None:
        """Add a flag with this default value."""
        group.add_argument(f"--{flag}", default=self.default(flag, value), **how)  # type: ignore[arg-type]

    def add_admin(self, listen: argparse._ArgumentGroup) -> None:
        """Add the flags for the admin port to a group."""
        port = str(names.PORT_ROUTER_ADMIN)
        help_text = "port for health, metrics and the table (default: %(default)s)"
        self.add(listen, "admin-port", port, type=int, help=help_text)
        help_text = (
            "names by which the admin port may be called beside addresses, names without a dot and those of a cluster "
            "(default: none)"
        )
        self.add(listen, "admin-hosts", "", metavar="A,B", help=help_text)
        help_text = (
            "file with the token that changes of state need at the admin port, read again each time; without such a "
            "file they are taken from loopback only"
        )
        self.add(listen, "admin-token-file", None, type=Path, metavar="FILE", help=help_text)

    def add_table(self) -> None:
        """Add the flags for the source of the table."""
        table = self.group("routing table, from a file or (in a pod) from PromptRoutes")
        self.add(
            table,
            "table",
            None,
            metavar="FILE",
            help="read the table from this JSON file, and again whenever it changes",
        )
        self.add(
            table,
            "namespaces",
            "",
            metavar="A,B",
            help="serve the PromptGroups of these namespaces (default: the pod's)",
        )
        help_text = (
            "take addresses of replicas in these networks, too: others that are loopback, link-local or a cloud's "
            "metadata service are refused (default: none)"
        )
        self.add(table, "allow-networks", "", metavar="NET,NET", help=help_text)
        folder = str(SERVICE_ACCOUNT_DIR)
        self.add(
            table,
            "service-account-dir",
            folder,
            type=Path,
            metavar="DIR",
            help="folder with credentials (default: %(default)s)",
        )
        self.add(
            table,
            "cache-file",
            None,
            type=Path,
            metavar="PATH",
            help="keep the last good table in this file, and keys (hashed, public, sealed) in PATH.keys, for restarts",
        )

    def add_access(self) -> None:
        """Add the flags for who may use groups that do not say it themselves."""
        access = self.group("access, of groups that do not say themselves who may use them")
        help_text = (
            "who may use them, in JSON as a PromptRoute has it, such as "
            '{"type": "APIKey", "secrets": ["api-keys"]} (default: anybody)'
        )
        self.add(access, "access-file", None, type=Path, metavar="FILE", help=help_text)
        help_text = "read Secrets with keys from DIR/NAMESPACE/NAME/KEY (default: from the API server)"
        self.add(access, "secrets-dir", None, type=Path, metavar="DIR", help=help_text)
        help_text = "trust these certificates for issuers of tokens, too, in PEM (default: the system's alone)"
        self.add(access, "issuer-ca", None, type=Path, metavar="FILE", help=help_text)

    def add_paths(self) -> None:
        """Add the flag for paths that are not listed."""
        paths = self.group("paths that engines serve beside those of the router's list")
        help_text = (
            "pass on requests (POST, in JSON) at these paths, too, by the model that they name; who may send requests "
            "may then use them, so name none that is for administrators (default: none)"
        )
        self.add(paths, "pass-paths", "", metavar="PATH,PATH", help=help_text)

    def add_peers(self) -> None:
        """Add the flags for the exchange with peers."""
        peers = self.group("other routers, which exchange placements of sessions and loads over UDP")
        self.add(
            peers,
            "peers",
            "",
            metavar="A,B",
            help="HOST (all its addresses) or HOST:PORT of the routers, itself included",
        )
        help_text = "file with the key that they share, read again when it changes; without a key nothing is exchanged"
        self.add(peers, "peer-key-file", None, type=Path, metavar="FILE", help=help_text)
        self.add(peers, "peer-port", str(PORT_PEERS), type=int, help="first port of the range (default: %(default)s)")
        help_text = (
            "number of ports in the range; a process takes the first that is free on its machine (default: %(default)s)"
        )
        self.add(peers, "peer-ports", "8", type=int, metavar="N", help=help_text)
        help_text = "seconds between datagrams, 0.01 to 1 (default: %(default)s)"
        self.add(peers, "peer-tick", "0.05", type=float, metavar="S", help=help_text)

    def add_logs(self) -> None:
        """Add the flags for logs."""
        log = self.group("logging, to standard error")
        levels = _one_of("DEBUG", "INFO", "WARNING", "ERROR")
        self.add(
            log,
            "log-level",
            "INFO",
            type=levels,
            metavar="LEVEL",
            help="minimum log level; DEBUG logs each decision (default: %(default)s)",
        )
        forms = _one_of("plain", "json")
        self.add(log, "log-format", "plain", type=forms, metavar="FORM", help="plain or json (default: %(default)s)")
        self.add(
            log,
            "access-log",
            "off",
            type=_one_of("on", "off"),
            metavar="on|off",
            help="log a line of JSON for each request, without text of prompts (default: %(default)s)",
        )

    def add_limits(self, limits: argparse._ArgumentGroup) -> None:
        """Add the flags for the limits of every process to a group."""
        size: dict[str, object] = {"type": int, "metavar": "N"}
        help_text = "largest request body (default: %(default)s)"
        self.add(limits, "max-body-bytes", str(MAX_BODY_BYTES), **size, help=help_text)
        help_text = "all request bodies together; the router needs twice that, 8 times --max-body-bytes, and 256 MiB "
        self.add(limits, "body-memory-bytes", str(BODY_MEMORY_BYTES), **size, help=help_text + "(default: %(default)s)")
        help_text = (
            "keep the first BYTES of unmatched prompts and of sampled questions, and "
            "serve them at /unmatched and /responses/samples (admin port); they contain prompt text; 0 to "
            f"{MAX_SAMPLE_BYTES} (default: %(default)s, none)"
        )
        self.add(limits, "keep-samples", "0", type=int, metavar="BYTES", help=help_text)
        help_text = (
            "client connections; idle ones give way to more, and where none is idle, more are answered with 503 "
            "(default: %(default)s)"
        )
        self.add(limits, "max-connections", "10000", **size, help=help_text)
        seconds: dict[str, object] = {"type": float, "metavar": "S"}
        help_text = "time to go on accepting after SIGTERM (default: 5 in Kubernetes, 0 with --table)"
        self.add(limits, "drain-delay", None, **seconds, help=help_text)
        self.add(
            limits,
            "drain-timeout",
            "300",
            **seconds,
            help="time for running requests to end after that (default: %(default)s)",
        )


def check_core(given: argparse.Namespace, *, ports: tuple[str, ...], positive: tuple[str, ...]) -> None:
    """Check numbers that were given.

    Args:
        given: the values of all flags.
        ports: the flags that are ports, with underscores.
        positive: more flags that must be above 0.

    Raises:
        ValueError: one is out of its range.
    """
    for flag in ports:
        if not 0 <= getattr(given, flag) <= 65535:
            raise ValueError(f"--{flag.replace('_', '-')} is {getattr(given, flag)}, expected 0 to 65535")
    for flag in ("max_body_bytes", "body_memory_bytes", "max_connections", *positive):
        if not getattr(given, flag) > 0:
            raise ValueError(f"--{flag.replace('_', '-')} is {getattr(given, flag)}, expected more than 0")
    if not 0 <= given.keep_samples <= MAX_SAMPLE_BYTES:
        raise ValueError(f"--keep-samples is {given.keep_samples}, expected 0 to {MAX_SAMPLE_BYTES}")
    for flag in ("drain_delay", "drain_timeout"):
        value = getattr(given, flag)
        if value is not None and not value >= 0:
            raise ValueError(f"--{flag.replace('_', '-')} is {value}, expected 0 or more")


def core_values(given: argparse.Namespace, environment: Mapping[str, str]) -> dict[str, Any]:
    """Return the fields of CoreSettings by name.

    Raises:
        ValueError: flags contradict each other; the message names the flag, the value and the way out.
    """
    source = _source(given, environment)
    drain_delay = given.drain_delay
    if drain_delay is None:
        drain_delay = 5.0 if isinstance(source, ApiServerAddress) else 0.0
    return {
        "source": source,
        "host": given.host,
        "port": given.port,
        "admin_port": given.admin_port,
        "admin_hosts": tuple(part for name in given.admin_hosts.lower().split(",") if (part := name.strip())),
        "admin_token_file": given.admin_token_file,
        "cache_file": given.cache_file,
        "access": _access(given.access_file),
        "secrets_dir": given.secrets_dir,
        "issuer_ca": given.issuer_ca,
        "peers": _peers(given),
        "peer_port": given.peer_port,
        "peer_ports": given.peer_ports,
        "peer_key_file": given.peer_key_file,
        "peer_tick": given.peer_tick,
        "max_body_bytes": given.max_body_bytes,
        "body_memory_bytes": given.body_memory_bytes,
        "max_connections": given.max_connections,
        "drain_delay": drain_delay,
        "drain_timeout": given.drain_timeout,
        "log_level": given.log_level,
        "log_format": given.log_format,
        "access_log": given.access_log == "on",
        "pass_paths": _pass_paths(given.pass_paths),
        "keep_samples": given.keep_samples,
    }


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


def _access(file: Path | None) -> Access:
    """Return the access of groups that have none of their own, from a file."""
    if file is None:
        return ANYBODY
    try:
        with file.open("rb") as content:
            return decode_access(orjson.loads(content.read(MAX_ACCESS_BYTES)), "access")
    except OSError as error:
        raise ValueError(f"--access-file is {str(file)!r}, which cannot be read: {error.strerror}") from None
    except (orjson.JSONDecodeError, TableError) as error:
        raise ValueError(f"--access-file is {str(file)!r}, which holds no access: {error}") from None


def _pass_paths(text: str) -> tuple[str, ...]:
    paths = tuple(dict.fromkeys(part for path in text.split(",") if (part := path.strip())))
    for path in paths:
        if not _PATH.fullmatch(path) or any(part in ("", ".", "..") for part in path[1:].split("/")):
            raise ValueError(f"--pass-paths has {path!r}, expected a path such as /v1/classify, without a query")
    if len(paths) > MAX_PASS_PATHS:
        raise ValueError(f"--pass-paths has {len(paths)} paths, expected {MAX_PASS_PATHS} at most")
    return paths


def _networks(text: str) -> tuple[ipaddress.IPv4Network | ipaddress.IPv6Network, ...]:
    try:
        return tuple(ipaddress.ip_network(part) for item in text.split(",") if (part := item.strip()))
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


def _one_of(*choices: str) -> Callable[[str], str]:
    """Return a type for a flag: argparse does not check its own `choices` for defaults, such as the environment's."""

    def check(value: str) -> str:
        if value not in choices:
            raise argparse.ArgumentTypeError(f"{value!r}, expected one of {', '.join(choices)}")
        return value

    return check
