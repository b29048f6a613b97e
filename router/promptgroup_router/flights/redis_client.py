"""Connects to Redis or Valkey by the official Redis client.

The client's types say little about the results of commands, so that this module alone uses it, behind a protocol. Its
import takes a quarter of a second, which only routers with a store spend.
"""

from collections.abc import AsyncIterator
from typing import Any, Protocol

from redis._parsers import _AsyncRESP2Parser  # the client has no public name for it
from redis.asyncio import Connection, ConnectionPool, Redis, RedisCluster, Sentinel, SSLConnection
from redis.asyncio.cluster import ClusterNode
from redis.asyncio.connection import AbstractConnection
from redis.asyncio.retry import Retry
from redis.asyncio.sentinel import SentinelConnectionPool
from redis.backoff import NoBackoff
from redis.credentials import CredentialProvider
from redis.exceptions import ResponseError

from promptgroup_router.base.store_settings import StoreSettings

__all__ = ["FAILURES", "CommandRefusedError", "RedisClient", "connect", "disconnect"]

CONNECTIONS = 32
"""Most connections to one server."""
STEP_SECONDS = 1.0
"""Time limit for each step: to connect, to authenticate, to get a reply. The client closes a connection that is late,
but leaves one open whose opening is cancelled by another time limit."""
MOST_REPLY_BYTES = 16 * 2**20
"""Most bytes of one reply: the largest value, and more than all other replies have."""
_LINE_BYTES = 1024
"""Least bytes for which a line of a reply counts: an array has many lines, and all of them are read at once."""

CommandRefusedError = ResponseError
"""The server answered in time, and refused the command: it is full, or the user lacks the permission."""
FAILURES = (Exception,)
"""The errors that a server, or an attacker in its place, can make the client raise: the client parses a cluster's list
of nodes without validation."""


class RedisClient(Protocol):
    """The commands that are used."""

    async def getrange(self, key: str, start: int, end: int) -> Any:
        """Return a part of a value as bytes, empty if there is none."""

    async def set(self, name: str, value: bytes, *, px: int) -> Any:
        """Set a value that expires after `px` milliseconds."""

    async def ping(self) -> Any:
        """Return True."""

    def scan_iter(self, match: str, count: int) -> AsyncIterator[bytes]:
        """Yield the names that match a pattern."""

    def pipeline(self, transaction: bool) -> Any:
        """Return a pipeline, which sends several commands at once."""

    async def aclose(self) -> None:
        """Close all connections."""


def connect(settings: StoreSettings) -> RedisClient:
    """Return a client of a store; it connects when it is first used."""
    common: dict[str, Any] = {
        "credential_provider": _Credentials(settings),
        "socket_connect_timeout": STEP_SECONDS,
        "socket_timeout": STEP_SECONDS,
        "protocol": 2,  # servers of all versions speak it, and its parser is the smaller one
        "driver_info": None,  # two commands fewer for each connection
        "retry": Retry(NoBackoff(), 0),  # after a failed read, an engine computes the answer
    }
    if settings.tls:
        files = {name: settings.file(name) for name in ("ca.crt", "tls.crt", "tls.key")}
        ca, certificate, key = (str(file) if file is not None else None for file in files.values())
        common |= {"ssl_ca_certs": ca, "ssl_certfile": certificate, "ssl_keyfile": key}
    if settings.kind == "cluster":
        return _cluster(settings, common)
    common["redis_connect_func"] = _bounded
    if settings.kind == "sentinel":
        with_tls = {"ssl": True, **common} if settings.tls else common
        # Sentinels have passwords of their own, if they have any
        asking = {name: value for name, value in with_tls.items() if name != "credential_provider"}
        sentinel = Sentinel(settings.hosts, sentinel_kwargs=asking, **with_tls)  # type: ignore[no-untyped-call]
        master: RedisClient = sentinel.master_for(settings.service, max_connections=CONNECTIONS)
        return master
    host, port = settings.hosts[0]
    of = SSLConnection if settings.tls else Connection
    pool: Any = ConnectionPool(of, host=host, port=port, db=settings.database, max_connections=CONNECTIONS, **common)
    single: Any = Redis.from_pool(pool)
    return single  # type: ignore[no-any-return]


async def disconnect(client: RedisClient) -> None:
    """Close all connections of a client."""
    pool: Any = getattr(client, "connection_pool", None)
    sentinels = pool.sentinel_manager.sentinels if isinstance(pool, SentinelConnectionPool) else ()
    for item in (client, *sentinels):
        await item.aclose()


def _cluster(settings: StoreSettings, common: dict[str, Any]) -> RedisClient:
    nodes = [ClusterNode(host, port) for host, port in settings.hosts]
    client: Any = RedisCluster(
        startup_nodes=nodes, max_connections=CONNECTIONS, ssl=settings.tls, require_full_coverage=False, **common
    )
    # the constructor accepts no such function, and passes its other arguments to each node
    for arguments in (client.connection_kwargs, *(node.connection_kwargs for node in client.startup_nodes)):
        arguments["redis_connect_func"] = _bounded
    return client  # type: ignore[no-any-return]


class _Credentials(CredentialProvider):
    """Reads the password for each connection, since it may have changed."""

    def __init__(self, settings: StoreSettings) -> None:
        self._settings = settings

    def get_credentials(self) -> tuple[str] | tuple[str, str]:
        password = self._settings.password()
        return (self._settings.user, password) if self._settings.user else (password,)

    async def get_credentials_async(self) -> Any:
        return self.get_credentials() if self._settings.user or self._settings.password() else None


class _BoundedParser(_AsyncRESP2Parser):
    """Reads replies up to a limit in bytes: without it, the client trusts the lengths that the server sends."""

    _left = 0

    async def read_response(self, disable_decoding: bool = False) -> Any:
        self._left = MOST_REPLY_BYTES
        return await super().read_response(disable_decoding)

    async def _read(self, length: int) -> bytes:
        self._take(length)
        return await super()._read(length)

    async def _readline(self) -> bytes:
        line = await super()._readline()
        self._take(len(line))
        return line

    def _take(self, size: int) -> None:
        self._left -= max(size, _LINE_BYTES)
        if self._left < 0 or size < 0:
            raise ConnectionError("a reply is too long")


async def _bounded(connection: AbstractConnection) -> None:
    """Initialize a connection that has just been opened as the client does it, with bounded replies."""
    errors = connection._parser.EXCEPTION_CLASSES  # noqa: SLF001 - a cluster's parser has more of them
    connection.set_parser(_BoundedParser)
    connection._parser.EXCEPTION_CLASSES = errors  # noqa: SLF001
    await connection.on_connect()
