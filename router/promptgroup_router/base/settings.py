"""Parses the router's flags and environment into one frozen Settings."""

import argparse
import os
import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path

from promptgroup_contract import names
from promptgroup_router.base.core_settings import (
    CoreSettings,
    FlagParser,
    check_core,
    core_values,
)
from promptgroup_router.base.store_settings import StoreSettings, read_store

RESPONSES_MEMORY_BYTES = 64 * 2**20
"""Some ten thousand answers of a page or two."""


@dataclass(frozen=True, slots=True)
class Settings(CoreSettings):
    """The router's settings. Every field but `source` is a flag, and `PROMPTGROUP_ROUTER_<FLAG>` in the environment."""

    reuse_port: bool
    tls_cert: Path | None
    """The certificate of the port for requests; None for plain HTTP."""
    tls_key: Path | None
    tls_client_ca: Path | None
    responses_memory_bytes: int
    responses_store: StoreSettings | None
    """The store that routers share; None without one."""
    request_timeout: float
    connect_timeout: float
    allowed_origins: tuple[str, ...] = ()
    """Origins whose web pages may ask; `*` for all."""


_ORIGIN = re.compile(r"[A-Za-z][A-Za-z0-9+.-]{0,31}://[A-Za-z0-9._\[\]:-]{1,255}")


def parse(arguments: Sequence[str], environment: Mapping[str, str] = os.environ) -> Settings:
    """Parse the command line, with defaults from the environment.

    Raises:
        SystemExit: after help or an error was printed; errors name the flag, the value and the way out.
    """
    parser = _parser(environment)
    given = parser.parse_args(arguments)
    try:
        check_core(
            given,
            ports=("port", "admin_port"),
            positive=("request_timeout", "connect_timeout"),
        )
        core = core_values(given, environment)
        _check_tls(given)
        _check_memory(given)
        store = read_store(given)
        origins = _origins(given.allowed_origins)
    except ValueError as error:
        parser.error(str(error))
    return Settings(
        **core,
        reuse_port=given.reuse_port,
        tls_cert=given.tls_cert,
        tls_key=given.tls_key,
        tls_client_ca=given.tls_client_ca,
        responses_memory_bytes=given.responses_memory_bytes,
        responses_store=store,
        request_timeout=given.request_timeout,
        connect_timeout=given.connect_timeout,
        allowed_origins=origins,
    )


def _origins(text: str) -> tuple[str, ...]:
    origins = tuple(dict.fromkeys(part for origin in text.split(",") if (part := origin.strip())))
    for origin in origins:
        if origin != "*" and not _ORIGIN.fullmatch(origin):
            raise ValueError(
                f"--allowed-origins has {origin!r}, expected an origin such as https://app.example.com, without a "
                "path, or * for all"
            )
    return origins


def _check_tls(given: argparse.Namespace) -> None:
    if (given.tls_cert is None) != (given.tls_key is None):
        raise ValueError("--tls-cert and --tls-key are not both given: give both for TLS, or none for plain HTTP")
    if given.tls_client_ca is not None and given.tls_cert is None:
        raise ValueError("--tls-client-ca is given without --tls-cert and --tls-key: give them, too")


def _check_memory(given: argparse.Namespace) -> None:
    if given.responses_memory_bytes < 0:
        raise ValueError(f"--responses-memory-bytes is {given.responses_memory_bytes}, expected 0 or more")


def _parser(environment: Mapping[str, str]) -> argparse.ArgumentParser:
    flags = FlagParser(
        "promptgroup-router",
        "PROMPTGROUP_ROUTER_",
        environment,
        description="Sends each LLM request to a replica that is warm for its prompt.",
        epilog="Try it without Kubernetes: promptgroup-router --table table.json",
    )
    flags.add_table()
    flags.add_access()
    flags.add_paths()
    listen = flags.group("listening")
    flags.add(listen, "host", "0.0.0.0", help="address of both ports (default: %(default)s)")  # noqa: S104 - a server in a pod
    flags.add(listen, "port", str(names.PORT_ROUTER), type=int, help="port for requests (default: %(default)s)")
    flags.add_admin(listen)
    flags.add(
        listen,
        "allowed-origins",
        "",
        metavar="ORIGIN,ORIGIN",
        help="origins whose web pages may send requests, such as https://app.example.com, or * (default: none)",
    )
    listen.add_argument(
        "--reuse-port",
        action="store_true",
        default=flags.default("reuse-port", "") in ("1", "true"),
        help="share the port with other router processes on this machine (SO_REUSEPORT)",
    )
    tls = flags.group("TLS on the port for requests, from files that are read again when they change")
    pem: dict[str, object] = {"type": Path, "metavar": "FILE"}
    flags.add(tls, "tls-cert", None, **pem, help="certificate in PEM, with those that lead to its authority")
    flags.add(tls, "tls-key", None, **pem, help="its key in PEM")
    help_text = "take only clients with a certificate of these authorities, in PEM (default: all clients)"
    flags.add(tls, "tls-client-ca", None, **pem, help=help_text)
    flags.add_peers()
    limits = flags.group("limits, times in seconds")
    flags.add_limits(limits)
    seconds: dict[str, object] = {"type": float, "metavar": "S"}
    flags.add(
        limits,
        "request-timeout",
        "600",
        **seconds,
        help="from the request to the end of its answer; of a stream, to its beginning, and for each pause within it "
        "(default: %(default)s)",
    )
    flags.add(
        limits, "connect-timeout", "2", **seconds, help="to open a connection to an engine (default: %(default)s)"
    )
    responses = flags.group("response cache, of groups with spec.responses")
    help_text = (
        "answers that all groups together keep in memory; raise the memory limit by as much. With 0 only a store keeps "
        "answers (default: %(default)s)"
    )
    flags.add(responses, "responses-memory-bytes", str(RESPONSES_MEMORY_BYTES), type=int, metavar="N", help=help_text)
    help_text = (
        "Redis or Valkey in which all routers keep answers: redis:// or rediss:// (TLS) and USER@HOST:PORT/DATABASE, "
        "redis+cluster://HOST:PORT,HOST:PORT, or redis+sentinel://HOST:PORT,HOST:PORT/SERVICE (default: `url` of its "
        "Secret, or none)"
    )
    flags.add(responses, "responses-store", "", metavar="URL", help=help_text)
    help_text = (
        "folder of a mounted Secret for it, with what is needed of `url`, `password`, `ca.crt`, `tls.crt` and `tls.key`"
    )
    flags.add(responses, "responses-store-secrets", None, type=Path, metavar="DIR", help=help_text)
    help_text = "longest time that a request waits for it (default: %(default)s)"
    flags.add(responses, "responses-store-timeout", "0.02", **seconds, help=help_text)
    flags.add_logs()
    return flags.parser
