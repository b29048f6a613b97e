"""Identifies the caller of a request by the access rules of its group. Does no I/O and reads no clock.

| the request                                        | the answer                                         |
|----------------------------------------------------|----------------------------------------------------|
| has no credential of the kind that its group asks  | 401 `missing_credential`                           |
| has an API key that is not in the namespace        | 401 `invalid_api_key`                              |
| has an invalid token                               | 401 `invalid_token`                                |
| has a caller header from outside its `sources`     | 401 `untrusted_sender`                             |
| is of a caller that the group does not list        | 403 `not_allowed`                                  |
| arrives before the keys have been read             | 503 `access_not_available`, or the request waits   |
| otherwise                                          | the caller                                         |
"""

from collections.abc import Callable, Mapping
from functools import lru_cache
from ipaddress import IPv4Network, IPv6Address, IPv6Network, ip_address, ip_network
from typing import Protocol

from promptgroup_contract.access import ANONYMOUS, ANYBODY, Access, AccessType, Caller
from promptgroup_router.access.issuer import Issuer, IssuerId, TokenError, UnknownKeyError
from promptgroup_router.access.keyring import Keyring, is_name
from promptgroup_router.access.known_key import KnownKey
from promptgroup_router.base.errors import ApiError, KeysAwaitedError
from promptgroup_router.http11.credentials import AUTHORIZATION, X_API_KEY, api_keys, bearer

MISSING, INVALID, NOT_ALLOWED, UNREAD = "missing_credential", "invalid_api_key", "not_allowed", "access_not_available"
INVALID_TOKEN, UNTRUSTED = "invalid_token", "untrusted_sender"
ACCESS_CODES = frozenset((MISSING, INVALID, INVALID_TOKEN, UNTRUSTED, NOT_ALLOWED, UNREAD))
"""Codes of the errors by which a request is refused because of its sender."""

_READING = "the keys of the token's issuer are being read"


class Sender(Protocol):
    """The connection on which a request arrived."""

    def peer_address(self) -> str:
        """Return the address of the peer; empty if that is not available."""

    def repeats(self, name: bytes) -> bool:
        """Return True if the request has a header field more than once."""

    def known_key(self) -> object:
        """Return what `remember` was given last on the connection; None if that is nothing."""

    def remember(self, key: object) -> None:
        """Store a key until another one replaces it or the connection ends."""


class NoSender:
    """The sender of a request that did not arrive on a connection."""

    def __init__(self, address: str = "") -> None:
        """Stand for a connection from an address; empty if there is none."""
        self._address = address

    def known_key(self) -> object:
        """Return None."""
        return None

    def remember(self, _key: object) -> None:
        """Store nothing."""

    def peer_address(self) -> str:
        """Return the address."""
        return self._address

    def repeats(self, _name: bytes) -> bool:
        """Return False."""
        return False


class Authenticator:
    """Identifies callers by their API keys, their tokens, or a header that a gateway sets."""

    def __init__(self, keyring: Keyring, default: Access = ANYBODY) -> None:
        """Start with a default.

        Args:
            keyring: the keys that callers may have.
            default: the access of groups that have none of their own; Secrets are those of the group's namespace.
        """
        self.keyring = keyring
        self.default = default
        self.issuers: dict[IssuerId, Issuer] = {}
        """The token issuers whose keys the router reads and refreshes."""
        self.on_keys: list[Callable[[], None]] = []
        """Called after each request for an issuer's keys, whether or not it succeeded."""
        self.epoch = 0.0
        """Seconds since 1970 at which the clock of requests was 0."""

    def access(self, own: Access | None) -> Access:
        """Return the effective access rules of a group: its own, or else the default."""
        return own if own is not None else self.default

    def identify(
        self, access: Access, namespace: str, fields: Mapping[bytes, bytes], sender: Sender, now: float
    ) -> Caller:
        """Return who sends a request.

        Args:
            access: that of the group.
            namespace: that of the group.
            fields: the request's header fields, names in lower case.
            sender: the connection on which it arrived.
            now: monotonic seconds.

        Raises:
            KeysAwaitedError: 503: the request can be retried once the issuer's keys have been read.
            ApiError: 401, 403 or 503, see above.
        """
        kind = access.type
        if kind is AccessType.API_KEY:
            caller = self._by_key(access, namespace, fields, sender)
        elif kind is AccessType.ANONYMOUS:
            return ANONYMOUS
        elif kind is AccessType.HEADER:
            caller = _by_header(access, fields, sender)
        else:
            caller = self._by_token(access, fields, now)
        if access.callers and caller.name not in access.callers:
            raise not_allowed(caller)
        return caller

    def _by_key(self, access: Access, namespace: str, fields: Mapping[bytes, bytes], sender: Sender) -> Caller:
        # most requests have one key, which is good, and is that of the connection's last request
        name = AUTHORIZATION if AUTHORIZATION in fields else X_API_KEY
        value, last, version = fields.get(name, b""), sender.known_key(), self.keyring.version
        if isinstance(last, KnownKey) and (known := last.caller(name, value, access, namespace, version)) is not None:
            return known
        token = bearer(fields) if name is AUTHORIZATION else value
        if token and (known := self.keyring.whose(token, namespace, access.secrets)) is not None:
            sender.remember(KnownKey(name, value, known, access=access, namespace=namespace, version=version))
            return known
        given = api_keys(fields)
        for key in given:
            caller = self.keyring.whose(key, namespace, access.secrets)
            if caller is not None:
                return caller
        if not given:
            raise ApiError(
                401,
                "no API key is given: send one, as `Authorization: Bearer KEY` or as `x-api-key: KEY`",
                code=MISSING,
            )
        if unread := self.keyring.unread(namespace, access.secrets):
            raise not_available(f"the API keys in Secret {unread} have not been read yet")
        if any(self.keyring.is_known(key, namespace) for key in given):
            raise ApiError(
                403,
                "the API key is known, but not to this group: ask its owner for access, or use another group",
                code=NOT_ALLOWED,
            )
        raise ApiError(401, "the API key is not known: it may have been replaced or withdrawn", code=INVALID)

    def _by_token(self, access: Access, fields: Mapping[bytes, bytes], now: float) -> Caller:
        token = bearer(fields)
        if not token:
            raise ApiError(401, "no token is given: send one, as `Authorization: Bearer TOKEN`", code=MISSING)
        issuer = self.issuers.get(IssuerId(access.jwks_uri, access.algorithms))
        if issuer is None:
            raise not_available(_READING)
        try:
            return issuer.caller(token, access, now, now + self.epoch)
        except UnknownKeyError:
            if issuer.away:
                raise not_available("the issuer of the token cannot be asked for its keys") from None
            raise KeysAwaitedError(503, f"{_READING}: retry", code=UNREAD) from None
        except TokenError as error:
            raise ApiError(401, f"{error}: ask its issuer for another", code=INVALID_TOKEN) from None


def _by_header(access: Access, fields: Mapping[bytes, bytes], sender: Sender) -> Caller:
    header = access.header.encode()
    value = fields.get(header)
    if not value:
        raise ApiError(
            401,
            f"the header {access.header} is missing, which the gateway sets: send requests through it",
            code=MISSING,
        )
    if not _is_within(sender.peer_address(), access.sources):
        raise ApiError(
            401, f"only the gateway may set the header {access.header}: send requests through it", code=UNTRUSTED
        )
    name = value.decode("latin-1")
    if sender.repeats(header) or not is_name(name):
        raise ApiError(401, f"the header {access.header} is given twice or holds no name of a caller", code=UNTRUSTED)
    return Caller(name)


@lru_cache(1024)
def _networks(sources: tuple[str, ...]) -> tuple[IPv4Network | IPv6Network, ...]:
    return tuple(ip_network(source) for source in sources)


@lru_cache(4096)
def _is_within(address: str, sources: tuple[str, ...]) -> bool:
    """Return True if an address is in one of these networks; an IPv4 address may be mapped into IPv6."""
    try:
        result = ip_address(address.partition("%")[0])
    except ValueError:
        return False
    if isinstance(result, IPv6Address) and result.ipv4_mapped is not None:
        result = result.ipv4_mapped
    return any(result in network for network in _networks(sources))


class Visit:
    """The identity of the sender of one request. The result of the last access rules is cached."""

    __slots__ = ("_access", "_authenticator", "_caller", "_fields", "_namespace", "_now", "_sender")

    def __init__(self, authenticator: Authenticator, fields: Mapping[bytes, bytes], sender: Sender, now: float) -> None:
        self._authenticator = authenticator
        self._fields = fields
        self._sender = sender
        self._now = now
        self._access: Access | None = None
        self._namespace = ""
        self._caller = ANONYMOUS

    def identify(self, own: Access | None, namespace: str) -> Caller:
        """Return who sends the request, by the access of a group (None: the router's default) in a namespace.

        Raises:
            ApiError: as `Authenticator.identify` does.
        """
        access = self._authenticator.access(own)
        if access is not self._access or namespace != self._namespace:
            self._caller = self._authenticator.identify(access, namespace, self._fields, self._sender, self._now)
            self._access, self._namespace = access, namespace
        return self._caller


def not_available(why: str) -> ApiError:
    """Return the error for a request whose sender cannot be identified yet."""
    return ApiError(503, f"{why}: retry", code=UNREAD)


def not_allowed(caller: Caller) -> ApiError:
    """Return the error for a caller whom the group does not list."""
    return ApiError(
        403,
        f"caller {caller.name!r} may not use this group: ask its owner for access, or use another group",
        code=NOT_ALLOWED,
    )
