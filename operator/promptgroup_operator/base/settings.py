"""Flags and environment → one frozen Settings."""

import argparse
import math
import os
import re
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from urllib.parse import urlsplit

from promptgroup_contract import names

SERVICE_ACCOUNT_DIR = Path("/var/run/secrets/kubernetes.io/serviceaccount")
"""Where Kubernetes puts a pod's token, namespace and CA."""

DAY = 86_400
"""Seconds; the longest time between two refreshes that can be asked for."""

MAX_PORT = 65_535
"""Largest port of TCP (RFC 9293, section 3.1)."""

LEAVING_TAINTS = (
    "ToBeDeletedByClusterAutoscaler",
    "aws-node-termination-handler/asg-lifecycle-termination",
    "aws-node-termination-handler/spot-itn",
    "cloud.google.com/impending-node-termination",
    "node.cloudprovider.kubernetes.io/shutdown",
    "node.kubernetes.io/out-of-service",
)
"""Keys of taints that announce the end of a node within seconds or two minutes.

The Cluster Autoscaler deletes the node; AWS takes a spot instance back, or an autoscaling group ends it; Google Cloud
preempts it; the instance is shut down; an administrator has declared it dead. Not among them: a cordon
(`node.kubernetes.io/unschedulable`), which may last for days, and `karpenter.sh/disrupted`, since Karpenter starts the
replacement first and evicts pods when that is ready.
"""
MIN_TIMEOUT, MAX_TIMEOUT = 0.1, 60
"""Seconds: a shorter wait fails on a busy network, and a longer one gives figures that are out of date."""

_MATCHERS = re.compile(r'\s*\w+\s*(=|!=|=~|!~)\s*"[^"\\{}]*"\s*(,\s*\w+\s*(=|!=|=~|!~)\s*"[^"\\{}]*"\s*)*')


@dataclass(frozen=True, slots=True)
class Settings:
    """The operator's settings. Every field is a flag, and `PROMPTGROUP_OPERATOR_<FLAG>` in the environment."""

    namespaces: tuple[str, ...] = ()
    """Namespaces to serve; empty: all of them."""
    router_namespaces: tuple[str, ...] = ()
    """Namespaces whose routers serve groups of others. A group's own namespace is always read."""
    host: str = ""
    """Address of the health and metrics ports; empty: every address."""
    health_port: int = names.PORT_OPERATOR_HEALTH
    """Port of /healthz."""
    metrics_port: int = names.PORT_OPERATOR_METRICS
    """Port of /metrics; 0: none."""
    workers: int = 8
    """Passes that may run at the same time."""
    warmups: int = 32
    """Warm-ups that may run at the same time."""
    observe: str = "all"
    """Groups whose caches are observed and explained: `all`, or only those that are `sized`, which need it."""
    refresh_seconds: float = 300.0
    """Longest time between two refreshes of a warm replica: a prefix that was lost is found after it at the latest."""
    lease: str = ""
    """NAMESPACE/NAME of the Lease whose holder acts; if it is empty, this process always acts, alone."""
    identity: str = ""
    """Name of this process in the Lease, completed to be unique; empty: the name of the host."""
    resync: int = 300
    """Seconds between two lists of what is watched."""
    prometheus_url: str = ""
    """Prometheus from which loads are read; if it is empty, the operator reads engines and routers itself."""
    prometheus_ca_file: Path | None = None
    """CA certificates for it; None: the system's."""
    prometheus_token_file: Path | None = None
    """File with a bearer token for it, read anew for each request."""
    prometheus_timeout: float = 5.0
    """Longest time for one of its answers, in seconds."""
    prometheus_selector: str = ""
    """Label matchers that every query has, where one Prometheus knows several clusters."""
    leaving_taints: tuple[str, ...] = LEAVING_TAINTS
    """Keys of node taints that announce the end of the node: its replicas drain. Empty: nodes are not watched."""
    gpu_hour_price: float = 0.0
    """Price of an hour of a GPU, in any currency; 0: not known."""
    service_account_dir: Path = SERVICE_ACCOUNT_DIR
    """Credentials inside a cluster; used when there is no kubeconfig."""
    log_level: str = "INFO"
    """DEBUG, INFO, WARNING or ERROR."""


def add_flags(parser: argparse.ArgumentParser) -> None:
    """Add the flags of `run` to a parser."""
    defaults = Settings()
    group = parser.add_argument_group("operator", "each flag also as PROMPTGROUP_OPERATOR_<FLAG> in the environment")
    group.add_argument(
        "--namespaces",
        default=_env("namespaces", ""),
        metavar="A,B",
        help="serve PromptGroups of these namespaces only (default: all)",
    )
    group.add_argument(
        "--router-namespaces",
        default=_env("router_namespaces", ""),
        metavar="A,B",
        help="read routers of these namespaces as well as those of a group's own, for sizing and releases",
    )
    group.add_argument(
        "--host",
        default=_env("host", defaults.host),
        help="address on which both ports listen (default: all addresses)",
    )
    for flag, port, subject in (
        ("health-port", defaults.health_port, "port of /healthz"),
        ("metrics-port", defaults.metrics_port, "port of /metrics; 0 turns it off"),
    ):
        given = _env(flag.replace("-", "_"), str(port))
        group.add_argument(
            f"--{flag}", type=int, default=given, metavar="PORT", help=f"{subject} (default: %(default)s)"
        )
    group.add_argument(
        "--workers",
        type=int,
        default=_env("workers", str(defaults.workers)),
        help="passes that may run at the same time; as many again for namespaces that have none (default: %(default)s)",
    )
    group.add_argument(
        "--warmups",
        type=int,
        default=_env("warmups", str(defaults.warmups)),
        help="warm-ups that may run at the same time, over all groups (default: %(default)s)",
    )
    group.add_argument(
        "--observe",
        default=_env("observe", defaults.observe),
        choices=["all", "sized"],
        help="groups whose caches are observed and explained in CacheEffective; those with spec.sizing always are "
        "(default: %(default)s)",
    )
    group.add_argument(
        "--refresh-seconds",
        type=float,
        default=_env("refresh_seconds", str(defaults.refresh_seconds)),
        help="seconds within which each warm replica is refreshed at least once (default: %(default)s)",
    )
    group.add_argument(
        "--lease",
        default=_env("lease", defaults.lease),
        metavar="NAMESPACE/NAME",
        help="act only while holding this Lease (default: act always, as the only operator)",
    )
    group.add_argument(
        "--identity",
        default=_env("identity", defaults.identity),
        help="name of this process in the Lease, completed to be unique (default: the name of the host)",
    )
    group.add_argument(
        "--resync",
        type=int,
        default=_env("resync", str(defaults.resync)),
        metavar="SECONDS",
        help="seconds between two lists of everything that is watched (default: %(default)s)",
    )
    group.add_argument(
        "--prometheus-url",
        default=_env("prometheus_url", ""),
        metavar="URL",
        help="read loads from this Prometheus (default: read engines and routers directly)",
    )
    for flag, subject in (
        ("ca-file", "file of certificates that the Prometheus server is verified with (default: the system's)"),
        ("token-file", "file with a bearer token for Prometheus, read for each request"),
    ):
        name = f"prometheus_{flag.replace('-', '_')}"
        group.add_argument(f"--prometheus-{flag}", default=_env(name, ""), metavar="FILE", help=subject)
    group.add_argument(
        "--prometheus-timeout",
        type=float,
        default=_env("prometheus_timeout", str(defaults.prometheus_timeout)),
        metavar="SECONDS",
        help="seconds to wait for a connection to Prometheus, and between parts of its answer (default: %(default)s)",
    )
    group.add_argument(
        "--prometheus-selector",
        default=_env("prometheus_selector", ""),
        metavar="MATCHERS",
        help='label matchers that are added to every query, as in cluster="eu"',
    )
    group.add_argument(
        "--leaving-taints",
        default=_env("leaving_taints", ",".join(defaults.leaving_taints)),
        metavar="KEY,KEY",
        help="keys of node taints that announce the end of the node, on which its replicas drain; empty: nodes are not "
        "watched (default: %(default)s)",
    )
    group.add_argument(
        "--gpu-hour-price",
        type=float,
        default=_env("gpu_hour_price", str(defaults.gpu_hour_price)),
        metavar="PRICE",
        help="GPU price per hour, in any currency; if set, misses are also reported as cost (default: none)",
    )
    group.add_argument(
        "--service-account-dir",
        type=Path,
        default=_env("service_account_dir", str(SERVICE_ACCOUNT_DIR)),
        help="folder with credentials inside a cluster (default: %(default)s)",
    )
    group.add_argument(
        "--log-level",
        default=_env("log_level", defaults.log_level),
        choices=["DEBUG", "INFO", "WARNING", "ERROR"],
        help="minimum log level (default: %(default)s)",
    )


def from_flags(arguments: argparse.Namespace) -> Settings:
    """Return the settings that parsed flags name.

    Raises:
        ValueError: a value is out of range or of another form; the message names the flag.
    """
    for flag in ("workers", "warmups", "resync"):
        if getattr(arguments, flag) < 1:
            raise ValueError(f"--{flag} is {getattr(arguments, flag)}, expected 1 or more")
    if not 0 <= arguments.metrics_port <= MAX_PORT or arguments.metrics_port == arguments.health_port:
        expected = f"expected a port up to {MAX_PORT} other than --health-port, or 0 for none"
        raise ValueError(f"--metrics-port is {arguments.metrics_port}, {expected}")
    if not 1 <= arguments.refresh_seconds <= DAY:
        raise ValueError(f"--refresh-seconds is {arguments.refresh_seconds}, expected 1 to {DAY}")
    if not 0 <= arguments.gpu_hour_price < math.inf:
        raise ValueError(f"--gpu-hour-price is {arguments.gpu_hour_price}, expected 0 or more")
    if arguments.lease and [bool(part) for part in arguments.lease.split("/")] != [True, True]:
        raise ValueError(f"--lease is {arguments.lease!r}, expected NAMESPACE/NAME")
    _check_prometheus(arguments)
    return Settings(
        namespaces=tuple(name for name in arguments.namespaces.split(",") if name),
        router_namespaces=tuple(name for name in arguments.router_namespaces.split(",") if name),
        host=arguments.host,
        health_port=arguments.health_port,
        metrics_port=arguments.metrics_port,
        workers=arguments.workers,
        warmups=arguments.warmups,
        observe=arguments.observe,
        refresh_seconds=arguments.refresh_seconds,
        lease=arguments.lease,
        identity=arguments.identity,
        resync=arguments.resync,
        prometheus_url=arguments.prometheus_url,
        prometheus_ca_file=Path(arguments.prometheus_ca_file) if arguments.prometheus_ca_file else None,
        prometheus_token_file=Path(arguments.prometheus_token_file) if arguments.prometheus_token_file else None,
        prometheus_timeout=arguments.prometheus_timeout,
        prometheus_selector=arguments.prometheus_selector,
        leaving_taints=tuple(key for key in arguments.leaving_taints.split(",") if key),
        gpu_hour_price=arguments.gpu_hour_price,
        service_account_dir=arguments.service_account_dir,
        log_level=arguments.log_level,
    )


def _check_prometheus(arguments: argparse.Namespace) -> None:
    parts = urlsplit(arguments.prometheus_url)
    if arguments.prometheus_url and (parts.scheme not in ("http", "https") or not parts.hostname or parts.query):
        # not repeated: it may hold a password
        raise ValueError("--prometheus-url is no address of a server, expected http://HOST:PORT or https://HOST/PATH")
    if not MIN_TIMEOUT <= arguments.prometheus_timeout <= MAX_TIMEOUT:
        expected = f"expected {MIN_TIMEOUT} to {MAX_TIMEOUT}"
        raise ValueError(f"--prometheus-timeout is {arguments.prometheus_timeout}, {expected}")
    if arguments.prometheus_selector and not _MATCHERS.fullmatch(arguments.prometheus_selector):
        raise ValueError(f'--prometheus-selector is {arguments.prometheus_selector!r}, expected name="value", ...')
    for flag in ("ca_file", "token_file"):
        path = getattr(arguments, f"prometheus_{flag}")
        if path and not Path(path).is_file():
            raise ValueError(f"--prometheus-{flag.replace('_', '-')} is {path}, which is no file")


def parse(arguments: Sequence[str]) -> Settings:
    """Return the settings that the flags of `run` name."""
    parser = argparse.ArgumentParser()
    add_flags(parser)
    return from_flags(parser.parse_args(arguments))


def _env(name: str, default: str) -> str:
    return os.environ.get(f"PROMPTGROUP_OPERATOR_{name.upper()}", default)
