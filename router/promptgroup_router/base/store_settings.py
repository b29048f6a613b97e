"""The settings of the store in which routers share answers."""

import argparse
from dataclasses import dataclass
from pathlib import Path
from urllib.parse import SplitResult, unquote, urlsplit

SCHEMES = tuple(f"{scheme}{kind}" for scheme in ("redis", "rediss") for kind in ("", "+sentinel", "+cluster"))
MOST_SECONDS = 1.0
"""Greatest timeout that can be set for a store: an engine answers within it."""
MOST_FILE_BYTES = 4096


@dataclass(frozen=True, slots=True)
class StoreSettings:
    """A Redis or Valkey."""

    hosts: tuple[tuple[str, int], ...]
    """Names and ports: of the server, of Sentinels, or of some nodes of a cluster."""
    kind: str
    """Empty for one server, `sentinel` or `cluster`."""
    tls: bool
    user: str
    """Empty for the default user."""
    database: int
    service: str
    """The name by which Sentinels identify the server."""
    secrets: Path | None
    """Folder of a mounted Secret with `url`, `password`, `ca.crt`, `tls.crt` and `tls.key`; each may be missing. The
    URL is read from there and not from an environment variable of the pod: a container that restarts while the API
    server is unavailable has its volumes, and may not get its variables."""
    timeout: float
    """Longest time that a request waits, in seconds."""

    def password(self) -> str:
        """Return the current password; empty without one."""
        try:
            if (file := self.file("password")) is None:
                return ""
            with file.open("rb") as content:
                return content.read(MOST_FILE_BYTES).decode("utf-8", "replace").strip()
        except OSError:
            return ""

    def file(self, name: str) -> Path | None:
        """Return a file of the Secret; None if it has none of this name."""
        path = self.secrets / name if self.secrets is not None else None
        return path if path is not None and path.exists() else None


def read_store(given: argparse.Namespace) -> StoreSettings | None:
    """Return the settings of the store; None without one.

    Raises:
        ValueError: a flag, or the file `url` of the Secret, has a value that names no store.
    """
    timeout = given.responses_store_timeout
    if not 0 < timeout <= MOST_SECONDS:
        raise ValueError(f"--responses-store-timeout is {timeout}, expected more than 0, at most {MOST_SECONDS:g}")
    text = given.responses_store or _mounted_url(given.responses_store_secrets)
    if not text:
        return None
    if given.peer_key_file is None:
        raise ValueError(
            "--responses-store is given without --peers and --peer-key-file: give them, since that key seals answers"
        )
    url = _url(text)
    scheme, _, kind = url.scheme.partition("+")
    path = unquote(url.path.strip("/"))
    if kind == "sentinel" and not path:
        raise ValueError("--responses-store names no service of its Sentinels: give redis+sentinel://HOST,HOST/SERVICE")
    if kind != "sentinel" and not (path or "0").isdecimal():
        raise ValueError(f"--responses-store ends with {path!r}, expected the number of a database, or nothing")
    if kind == "cluster" and path.strip("0"):
        raise ValueError(f"--responses-store names database {path}, but a cluster has only 0: leave it out")
    user, _, hosts = url.netloc.rpartition("@")
    return StoreSettings(
        hosts=tuple(_host(part, 26379 if kind == "sentinel" else 6379) for part in hosts.split(",")),
        kind=kind,
        tls=scheme == "rediss",
        user=unquote(user),
        database=int(path or 0) if kind != "sentinel" else 0,
        service=path if kind == "sentinel" else "",
        secrets=given.responses_store_secrets,
        timeout=timeout,
    )


def _mounted_url(secrets: Path | None) -> str:
    """Return the URL that a mounted Secret has; empty without one."""
    try:
        if secrets is None or not (file := secrets / "url").exists():
            return ""
        with file.open("rb") as content:
            return content.read(MOST_FILE_BYTES).decode("utf-8", "replace").strip()
    except OSError as error:
        raise ValueError(f"--responses-store-secrets: {secrets}/url cannot be read: {error.strerror}") from None


def _url(text: str) -> SplitResult:
    try:
        url = urlsplit(text)
    except ValueError:
        raise ValueError("--responses-store is no URL, expected one such as rediss://user@host:6379") from None
    if url.scheme not in SCHEMES or not url.netloc:
        raise ValueError(f"--responses-store has the scheme {url.scheme!r}, expected one of {', '.join(SCHEMES)}")
    if ":" in url.netloc.rpartition("@")[0]:
        raise ValueError(
            "--responses-store has a password, which others can see: put it into the file `password` of "
            "--responses-store-secrets"
        )
    return url


def _host(text: str, default: int) -> tuple[str, int]:
    """Parse `host`, `host:port`, `[v6]` or `[v6]:port`."""
    host, _, port = text.rpartition(":") if not text.endswith("]") and ":" in text else (text, "", "")
    host = host.removeprefix("[").removesuffix("]")
    if not host or (port and not (port.isascii() and port.isdecimal() and 1 <= int(port) <= 65535)):
        raise ValueError(f"--responses-store has {text!r}, expected HOST or HOST:PORT")
    return host, int(port or default)
