"""Checks the health of the servers of KV pools over HTTP.

LMCache's `/healthcheck` reports healthy after the connection to its backend store is lost, although it never reconnects
(0.5.6). So its counters are read as well: chunks that it accepted to store against chunks that were stored.
"""

import socket
import threading
from collections.abc import Callable
from time import monotonic

from promptgroup_operator.api.cache import PoolSpec, PoolType
from promptgroup_operator.base.errors import EngineError
from promptgroup_operator.base.fair_pool import FairPool
from promptgroup_operator.engines import exposition
from promptgroup_operator.world.snapshot import PoolAnswers

MAX_SERVERS = 64
"""Maximum number of servers of a pool that are checked: one on each node."""
FRESH_SECONDS = 10.0
"""Time in seconds for which answers are cached, so that groups with a common pool cause one check."""
ASK_SECONDS = 5.0
"""Time limit in seconds for all servers of a pool."""
STUCK_SECONDS = 60.0
"""Time without a stored chunk, while chunks were accepted, after which a server counts as stuck."""

_HEALTH = {PoolType.LMCACHE: "/healthcheck", PoolType.MOONCAKE: "/health"}
_SUBMITTED = "lmcache_mp_l2_store_submitted_objects_chunks_total"
_COMPLETED = "lmcache_mp_l2_store_completed_objects_chunks_total"
_USED = "lmcache_mp_l1_memory_usage_bytes"
_USAGE = "lmcache_mp_l1_usage_ratio"
LEAST_USAGE = 0.001
"""Minimum share of its memory that a server must have filled for the size to be computed from it."""

_Stores = tuple[float, float, float]
"""Time of the last progress (a stored chunk, or none pending), and the counts of accepted and stored chunks then."""


def resolve(address: str) -> list[str]:
    """Return the addresses that a name resolves to, each with the port."""
    host, _, port = address.rpartition(":")
    try:
        result = socket.getaddrinfo(host.strip("[]"), int(port), type=socket.SOCK_STREAM)
    except OSError:
        return []
    hosts = sorted({str(item[4][0]) for item in result})
    return [f"[{item}]:{port}" if ":" in item else f"{item}:{port}" for item in hosts[:MAX_SERVERS]]


class PoolMonitor:
    """Checks of all KV pools, with cached answers. Safe to use from many threads.

    Args:
        read: returns the page at an address and a path, or raises EngineError.
        readers: runs the requests concurrently.
        clock: monotonic seconds.
        resolve: returns the addresses that a name resolves to.
    """

    def __init__(
        self,
        read: Callable[[str, str], str],
        readers: FairPool,
        clock: Callable[[], float] = monotonic,
        resolve: Callable[[str], list[str]] = resolve,
    ) -> None:
        self._read = read
        self._readers = readers
        self._clock = clock
        self._resolve = resolve
        self._cached: dict[tuple[str, PoolType], tuple[float, PoolAnswers]] = {}
        self._stores: dict[str, _Stores] = {}
        self._sizes: dict[str, int] = {}
        """Server → size of its memory in bytes, from its last metrics; 0 while it is empty."""
        self._lock = threading.Lock()

    def ask(self, pool: PoolSpec, share: str) -> PoolAnswers:
        """Return the answers of the servers of a pool, which are cached for FRESH_SECONDS.

        Args:
            pool: the pool, which has a monitor.
            share: the namespace or other unit whose share of the readers is used.
        """
        monitor = pool.monitor or ""
        key, now = (monitor, pool.type), self._clock()
        with self._lock:
            self._cached = {item: entry for item, entry in self._cached.items() if now - entry[0] < FRESH_SECONDS}
            if key in self._cached:
                return self._cached[key][1]
        (resolved,) = self._readers.map(share, self._resolve, [monitor], ASK_SECONDS)  # DNS has no deadline
        servers = resolved or []
        answers = self._readers.map(share, lambda server: self._one(server, pool.type), servers, ASK_SECONDS)
        failed = {
            server: answer if answer is not None else f"no answer within {ASK_SECONDS:g} s"
            for server, answer in zip(servers, answers, strict=True)
            if answer != ""
        }
        with self._lock:
            stuck = tuple(server for server in servers if self._is_stuck(server))
            sizes = [self._sizes.get(server, 0) for server in servers if server not in failed]
            pool_answers = PoolAnswers(len(servers), failed, stuck, sum(sizes) if all(sizes) and not failed else 0)
            self._cached[key] = now, pool_answers
            self._stores = {item: entry for item, entry in self._stores.items() if now - entry[0] < 3600}
            self._sizes = {item: size for item, size in self._sizes.items() if item in self._stores}
        return pool_answers

    def _one(self, server: str, kind: PoolType) -> str:
        """Return the reason why a server is unreachable; empty if it responds."""
        try:
            self._read(server, _HEALTH[kind])
            page = self._read(server, "/metrics") if kind is PoolType.LMCACHE else ""
        except EngineError as error:
            return str(error)
        self._note(server, page)
        return ""

    def _note(self, server: str, page: str) -> None:
        sums = {_SUBMITTED: 0.0, _COMPLETED: 0.0, _USED: 0.0, _USAGE: 0.0}
        for name, _, value in exposition.samples(page, tuple(sums)):
            if name in sums:
                sums[name] += exposition.number(value) or 0.0
        submitted, completed = sums[_SUBMITTED], sums[_COMPLETED]
        now = self._clock()
        with self._lock:
            # The metrics have the used bytes and the used share, but not the size.
            self._sizes[server] = int(sums[_USED] / sums[_USAGE]) if sums[_USAGE] >= LEAST_USAGE else 0
            _, _, stored = self._stores.get(server, (now, 0.0, -1.0))
            if completed != stored or submitted <= completed:
                self._stores[server] = now, submitted, completed
            else:
                began, accepted, _ = self._stores[server]
                # Nothing can be stored without new chunks, so the time starts with the first of them.
                self._stores[server] = began if submitted > accepted else now, accepted, completed

    def _is_stuck(self, server: str) -> bool:
        began, _, _ = self._stores.get(server, (self._clock(), 0.0, 0.0))
        return self._clock() - began >= STUCK_SECONDS
