"""Values of flags that name a server, and the files that it is asked with."""

import argparse
import os
from pathlib import Path
from urllib.parse import urlsplit


def server_address(text: str) -> str:
    """Return the address of a server, which `--router`, `--prometheus` and `--from-prometheus` take.

    Raises:
        argparse.ArgumentTypeError: it is none; the message does not repeat it, since it may hold a password.
    """
    try:
        parts = urlsplit(text)
        usable = parts.scheme in ("http", "https") and parts.hostname and not parts.query and parts.port != 0
    except ValueError:  # of brackets that do not match, and of a port that is no number up to 65535
        usable = False
    if not usable:
        raise argparse.ArgumentTypeError("not the address of a server, expected http://HOST:PORT or https://HOST/PATH")
    return text


def add_prometheus_files(parser: argparse._ActionsContainer) -> None:
    """Add the flags that name the files by which a Prometheus is asked."""
    parser.add_argument("--prometheus-token-file", type=_readable, metavar="FILE", help="file with a bearer token")
    parser.add_argument(
        "--prometheus-ca-file",
        type=_readable,
        metavar="FILE",
        help="certificates of the authority that signed the server's",
    )


def _readable(text: str) -> Path:
    path = Path(text)
    if not path.is_file():
        raise argparse.ArgumentTypeError(f"{text!r} is no file")
    if not os.access(path, os.R_OK):
        raise argparse.ArgumentTypeError(f"{text!r} may not be read")
    return path
