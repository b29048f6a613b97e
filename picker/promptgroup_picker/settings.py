"""Parses the picker's flags and environment into one frozen PickerSettings."""

import argparse
import os
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path

from promptgroup_contract import names
from promptgroup_router.base.core_settings import CoreSettings, FlagParser, check_core, core_values

MAX_ENDPOINTS = 8
"""Most endpoints in the answer for one request: further retries would be too late for clients."""


@dataclass(frozen=True, slots=True)
class PickerSettings(CoreSettings):
    """The picker's settings. Every field but `source` is a flag, and `PROMPTGROUP_PICKER_<FLAG>` in the environment."""

    health_port: int
    plaintext: bool
    tls_cert_file: Path | None
    """None, like the key, for a certificate that the picker makes for itself."""
    tls_key_file: Path | None
    endpoints: int
    conformance: str
    """Name of the InferencePool that the conformance tests are about; empty for none."""
    tls_client_ca: Path | None = None
    """Authorities of gateways' certificates; None for gateways that show none."""


def parse(arguments: Sequence[str], environment: Mapping[str, str] = os.environ) -> PickerSettings:
    """Parse the command line, with defaults from the environment.

    Raises:
        SystemExit: after help or an error was printed; errors name the flag, the value and the way out.
    """
    flags = flag_parser(environment)
    parser = flags.parser
    given = parser.parse_args(arguments)
    try:
        check_core(given, ports=("port", "admin_port", "health_port"), positive=())
        _check(given)
        core = core_values(given, environment)
    except ValueError as error:
        parser.error(str(error))
    return PickerSettings(
        **core,
        health_port=given.health_port,
        plaintext=given.plaintext,
        tls_cert_file=given.tls_cert_file,
        tls_key_file=given.tls_key_file,
        endpoints=given.endpoints,
        conformance=given.conformance,
        tls_client_ca=given.tls_client_ca,
    )


def _check(given: argparse.Namespace) -> None:
    if not 1 <= given.endpoints <= MAX_ENDPOINTS:
        raise ValueError(f"--endpoints is {given.endpoints}, expected 1 to {MAX_ENDPOINTS}")
    if (given.tls_cert_file is None) != (given.tls_key_file is None):
        raise ValueError("--tls-cert-file and --tls-key-file are given one without the other: give both, or none")
    if given.conformance and given.table is not None:
        raise ValueError("--conformance and --table are both given, but the pool is on an API server: leave one out")
    for flag, file in (("--tls-cert-file", given.tls_cert_file), ("--tls-client-ca", given.tls_client_ca)):
        if given.plaintext and file is not None:
            raise ValueError(f"--plaintext and {flag} are both given: leave one out")


def flag_parser(environment: Mapping[str, str]) -> FlagParser:
    """Return the parser of the picker's flags."""
    flags = FlagParser(
        "promptgroup-picker",
        "PROMPTGROUP_PICKER_",
        environment,
        description="Tells a gateway which replica is warm for each LLM request (Gateway API Inference Extension).",
        epilog="Try it without Kubernetes: promptgroup-picker --table table.json --plaintext",
    )
    flags.add_table()
    flags.add_access()
    flags.add_paths()
    listen = flags.group("listening")
    flags.add(listen, "host", "0.0.0.0", help="address of all ports (default: %(default)s)")  # noqa: S104 - in a pod
    port = str(names.PORT_PICKER)
    flags.add(listen, "port", port, type=int, help="port for gateways, gRPC (default: %(default)s)")
    port, text = str(names.PORT_PICKER_HEALTH), "port for gRPC health checks, without TLS (default: %(default)s)"
    flags.add(listen, "health-port", port, type=int, help=text)
    flags.add_admin(listen)
    listen.add_argument(
        "--plaintext",
        action="store_true",
        default=flags.default("plaintext", "") in ("1", "true"),
        help="serve gateways without TLS",
    )
    text = "certificate for gateways (default: one that the picker makes for itself, which they do not verify)"
    flags.add(listen, "tls-cert-file", None, type=Path, metavar="FILE", help=text)
    flags.add(listen, "tls-key-file", None, type=Path, metavar="FILE", help="its key")
    text = "take only gateways with a certificate of these authorities, in PEM (default: whoever reaches the port)"
    flags.add(listen, "tls-client-ca", None, type=Path, metavar="FILE", help=text)
    answers = flags.group("answers")
    text = (
        "most endpoints that are named for a request: the gateway tries them in order. More than 1 needs a gateway "
        "that understands a list, which Envoy's ORIGINAL_DST clusters do not (default: %(default)s)"
    )
    flags.add(answers, "endpoints", "1", type=int, metavar="N", help=text)
    text = (
        "obey the test headers of the Inference Extension's conformance tests, for the InferencePool of this name in "
        "the first of --namespaces; never where clients are (default: off)"
    )
    flags.add(answers, "conformance", "", metavar="POOL", help=text)
    flags.add_peers()
    flags.add_limits(flags.group("limits, times in seconds"))
    flags.add_logs()
    return flags
