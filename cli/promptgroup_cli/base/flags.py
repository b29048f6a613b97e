"""The flags that several commands have, and the values that flags take."""

import argparse
import os
import shlex
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from typing import Any, NoReturn
from urllib.parse import urlsplit

from promptgroup_cli.base.errors import ExitStatus
from promptgroup_contract.names import is_object_name

DISTRIBUTION = "promptgroup"
"""Name of the installed package, whose version `--version` prints."""
HOUR = 3600
"""Longest interval between two readings, in seconds."""
MOST_OF_GROUP = 50
"""Characters of a PromptGroup's name at most; repeated here since the models that define it take long to import."""
ENGINES = ("vLLM", "SGLang", "TensorRTLLM")
"""Values of `spec.engine.type`, repeated here for the same reason."""


class VersionAction(argparse.Action):
    """`--version`: print the version of the package and end the process."""

    def __init__(self, option_strings: Sequence[str], dest: str, **_: Any) -> None:
        super().__init__(option_strings, argparse.SUPPRESS, nargs=0, help="print the version and exit")

    def __call__(self, parser: argparse.ArgumentParser, *_: object) -> NoReturn:
        """Print the version."""
        from importlib import metadata  # noqa: PLC0415 - takes a tenth of the time that a command may take to start

        print(f"{DISTRIBUTION} {metadata.version(DISTRIBUTION)}")
        parser.exit(ExitStatus.OK)


@dataclass(frozen=True, slots=True)
class ClusterChoice:
    """A cluster and a namespace in it, as kubectl's flags name them; empty values are left to the kubeconfig."""

    namespace: str = ""
    context: str = ""
    kubeconfig: str = ""

    @property
    def kubectl(self) -> str:
        """The beginning of a kubectl command line for the same cluster, for people."""
        flags = (("--kubeconfig", self.kubeconfig), ("--context", self.context))
        return " ".join(["kubectl", *(f"{flag} {shlex.quote(value)}" for flag, value in flags if value)])


def cluster_choice(arguments: argparse.Namespace) -> ClusterChoice:
    """Return the values of the flags of `add_cluster`."""
    return ClusterChoice(arguments.namespace or "", arguments.context or "", arguments.kubeconfig or "")


def add_cluster(parser: argparse._ActionsContainer, namespace: argparse._MutuallyExclusiveGroup | None = None) -> None:
    """Add kubectl's flags for a cluster and a namespace in it.

    Args:
        parser: the parser, or a group of its flags.
        namespace: a group that has another flag in place of `--namespace`.
    """
    (namespace or parser).add_argument(
        "-n", "--namespace", metavar="NS", help="namespace (default: that of the kubeconfig's context)"
    )
    parser.add_argument("--context", metavar="NAME", help="context of the kubeconfig (default: its current one)")
    parser.add_argument(
        "--kubeconfig", metavar="FILE", help="the kubeconfig (default: those of $KUBECONFIG, or ~/.kube/config)"
    )


def add_router(parser: argparse._ActionsContainer, *, several: bool = False) -> None:
    """Add the flag that names a router, or any number of routers."""
    more = "; may be given several times" if several else ""
    parser.add_argument(
        "--router",
        action="append" if several else "store",
        type=server_address,
        metavar="URL",
        help=f"query this router at its admin port, as in http://127.0.0.1:9090{more} (default: the routers of the "
        "namespace, through the API server)",
    )


def add_interval(parser: argparse._ActionsContainer, default: float, least: float, subject: str) -> None:
    """Add the flag for the seconds between two readings."""
    parser.add_argument(
        "--interval",
        type=partial(_seconds, least),
        default=default,
        metavar="SECONDS",
        help=f"{subject} (default: %(default)g)",
    )


def add_output(parser: argparse._ActionsContainer, *forms: str, text: str = "format of the output") -> None:
    """Add the flag that chooses a form of the output, of which the first is the default."""
    forms = forms or ("table", "json")
    parser.add_argument("-o", "--output", choices=forms, default=forms[0], help=f"{text} (default: %(default)s)")


def add_prometheus_files(parser: argparse._ActionsContainer) -> None:
    """Add the flags for the token and the CA certificates of a Prometheus."""
    parser.add_argument("--prometheus-token-file", type=_readable, metavar="FILE", help="file with a bearer token")
    parser.add_argument(
        "--prometheus-ca-file",
        type=_readable,
        metavar="FILE",
        help="certificates of the authority that signed the server's",
    )


# Each of these raises argparse.ArgumentTypeError for a text that is no such value.


def server_address(text: str) -> str:
    """Return the address of a server, which `--router`, `--prometheus` and `--from-prometheus` take.

    The error does not repeat it, since it may hold a password.
    """
    try:
        parts = urlsplit(text)
        usable = parts.scheme in ("http", "https") and parts.hostname and not parts.query and parts.port != 0
    except ValueError:  # of brackets that do not match, and of a port that is no number up to 65535
        usable = False
    if not usable:
        raise argparse.ArgumentTypeError("not the address of a server, expected http://HOST:PORT or https://HOST/PATH")
    return text


def whole_number(least: int, most: int) -> Callable[[str], int]:
    """Return a reader of whole numbers in these bounds."""

    def read(text: str) -> int:
        if not (text.isascii() and text.isdigit() and len(text) <= len(str(most)) and least <= int(text) <= most):
            raise argparse.ArgumentTypeError(f"{text!r} is not a whole number from {least} to {most}")
        return int(text)

    return read


def group_name(text: str) -> str:
    """Return the name of a PromptGroup."""
    if not is_object_name(text) or len(text) > MOST_OF_GROUP:
        raise argparse.ArgumentTypeError(
            f"{text!r} is not a name of a PromptGroup: write at most {MOST_OF_GROUP} lower-case letters, digits and '-'"
        )
    return text


def group_key(text: str) -> tuple[str, str]:
    """Return the namespace and the name of a PromptGroup, written NAMESPACE/NAME."""
    namespace, _, name = text.partition("/")
    if not is_object_name(namespace) or not is_object_name(name):
        raise argparse.ArgumentTypeError(f"{text!r} is not a group: write NAMESPACE/NAME")
    return namespace, name


def _seconds(least: float, text: str) -> float:
    try:
        value = float(text)
    except ValueError:
        value = 0.0
    if not least <= value <= HOUR:
        raise argparse.ArgumentTypeError(f"{text!r} is not a number of seconds from {least:g} to {HOUR}")
    return value


def _readable(text: str) -> Path:
    path = Path(text)
    if not path.is_file():
        raise argparse.ArgumentTypeError(f"{text!r} is no file")
    if not os.access(path, os.R_OK):
        raise argparse.ArgumentTypeError(f"{text!r} may not be read")
    return path
