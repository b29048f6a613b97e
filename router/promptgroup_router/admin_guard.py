"""Decides which requests the admin port accepts. Reads no clock; the token's file is read when a request changes state.

| the request                                                    | is answered                                       |
|----------------------------------------------------------------|---------------------------------------------------|
| names a host that anybody could own, such as `a.example`       | 403: a page of a browser may have rebound the name |
| is a POST of a page of another origin                          | 403                                               |
| changes state, without the token of `--admin-token-file`       | 403                                               |
| changes state, where no token is configured, from elsewhere    | 403: only loopback is taken, as of a port-forward |
| all others                                                     | by their path                                     |

The owner of a name can rebind it. Addresses, names without a dot, and names of a cluster or of loopback have no
owner outside. The API server's proxy passes its own host on; `sec-promptgroup-client` then tells that no page is
asking, since browsers let no page set a header of which the name begins with `sec-` (Fetch standard, section 2.2.2).
"""

import hmac
from collections.abc import Collection
from ipaddress import ip_address
from pathlib import Path

from promptgroup_contract import names
from promptgroup_router.base.errors import ApiError, shown
from promptgroup_router.http11.reader import HttpRequest

MOST_TOKEN_BYTES = 4096
LOCAL_DOMAINS = (".localhost", ".svc", ".cluster.local")
"""Ends of names that no public DNS has."""

_CLIENT, _TOKEN = names.HEADER_CLIENT.encode(), names.HEADER_ADMIN_TOKEN.encode()


class AdminGuard:
    """The rules of one process."""

    def __init__(self, hosts: Collection[str] = (), token_file: Path | None = None) -> None:
        """Read nothing yet.

        Args:
            hosts: more names, in lower case, by which the port may be called.
            token_file: holds the token for changes of state; None without one.
        """
        self._hosts = frozenset(hosts)
        self._token_file = token_file

    def check(self, request: HttpRequest, address: str, *, changes: bool) -> None:
        """Check a request before anything else is looked at.

        Args:
            request: the request.
            address: that of its sender; empty if it is unknown.
            changes: True if it asks for a change of state.

        Raises:
            ApiError: 403; the message says what would be taken.
        """
        fields = request.head.fields
        host = fields.get(b"host", b"").decode("latin-1").lower()
        if _CLIENT not in fields and not self._is_own(host):
            raise _refused(
                f"the admin port does not serve the host {shown(host)}: use an address, or name it in --admin-hosts"
            )
        if request.head.method not in (b"GET", b"HEAD") and not _is_same_origin(fields, host):
            raise _refused("pages of another origin may not use the admin port: ask by another client than a browser")
        if changes:
            self._check_token(fields.get(_TOKEN, b""), address)

    def _is_own(self, host: str) -> bool:
        name = _name(host)
        return name in self._hosts or "." not in name or name.endswith(LOCAL_DOMAINS) or _is_address(name)

    def _check_token(self, given: bytes, address: str) -> None:
        token = self._token()
        if token is None:
            if not _is_loopback(address):
                raise _refused(
                    "changes are only taken from this machine, since there is no admin token: use `kubectl "
                    f"port-forward`, or make the Secret {names.ADMIN_SECRET} and send its token as "
                    f"{names.HEADER_ADMIN_TOKEN}"
                )
        elif not token or not hmac.compare_digest(token, given.strip()):
            raise _refused(f"changes need the admin token: send it as {names.HEADER_ADMIN_TOKEN}")

    def _token(self) -> bytes | None:
        """Return the token as of now; None if none is configured, empty if the one that is cannot be used."""
        if self._token_file is None:
            return None
        try:
            with self._token_file.open("rb") as file:
                token = file.read(MOST_TOKEN_BYTES + 1).strip()
        except FileNotFoundError:
            return None
        except OSError:
            return b""
        return token if len(token) <= MOST_TOKEN_BYTES else b""


def _is_same_origin(fields: dict[bytes, bytes], host: str) -> bool:
    """Return True unless a browser says that a page of another origin asks."""
    origin = fields.get(b"origin")
    if origin is not None and origin.decode("latin-1").lower() not in (f"http://{host}", f"https://{host}"):
        return False
    return fields.get(b"sec-fetch-site", b"none").lower() in (b"same-origin", b"none")


def _name(host: str) -> str:
    """Return the name or address of a host, without its port, brackets and last dot."""
    if host.startswith("["):
        return host[1:].partition("]")[0]
    return host.partition(":")[0].removesuffix(".")


def _is_address(name: str) -> bool:
    try:
        ip_address(name.partition("%")[0])
    except ValueError:
        return False
    return True


def _is_loopback(address: str) -> bool:
    """Return True for an address of this machine; an IPv4 address may come as an IPv6 one."""
    address = address.partition("%")[0].removeprefix("::ffff:")
    return _is_address(address) and ip_address(address).is_loopback


def _refused(message: str) -> ApiError:
    return ApiError(403, message, code="not_allowed")
