"""Follows the keys of tokens' issuers, beside the requests: every few minutes, and soon where a token needs another.

Keys that were read once hold until others were read: an outage of an issuer ends no request.
"""

import asyncio
import logging
import random
import ssl
from collections.abc import Callable, Sequence
from math import inf

from promptgroup_contract.access import Access, AccessType
from promptgroup_contract.table import RoutingTable
from promptgroup_router.access.issuer import MAX_JWKS_BYTES, Issuer, IssuerId, TokenError
from promptgroup_router.base.logs import fields
from promptgroup_router.decision.composition import features_of
from promptgroup_router.feed.https_get import DocumentError, get
from promptgroup_router.feed.slot_address import Network
from promptgroup_router.routing.state import RouterState

log = logging.getLogger("promptgroup.access")

ISSUERS = "issuers"
"""Their name among the keys that a router requests before it is ready."""
FOLLOW_SECONDS = 300.0
"""Seconds between two reads of an issuer's keys. Issuers publish a key hours or days before they sign with it."""
FIRST_BACKOFF = 1.0
LAST_BACKOFF = 60.0
"""Seconds to wait after a read that failed: the first, and the most."""
LOOK_SECONDS = 0.25
"""Seconds between checks for tokens with unknown keys."""
REFRESH_SECONDS = 5.0
"""Shortest time between two reads because of tokens: invented key ids cause no more requests."""


def issuers(table: RoutingTable, default: Access) -> frozenset[IssuerId]:
    """Return the issuers of tokens that a table's groups take."""
    accesses = (group.access if group.access is not None else default for group in table.groups)
    return frozenset(
        IssuerId(access.jwks_uri, access.algorithms) for access in accesses if access.type is AccessType.JWT
    )


class IssuerFeed:
    """Reads the keys of issuers while groups take their tokens."""

    def __init__(
        self,
        state: RouterState,
        clock: Callable[[], float],
        context: Callable[[], ssl.SSLContext],
        networks: Sequence[Network] = (),
    ) -> None:
        """Begin with nothing read.

        Args:
            state: its table names the issuers, and its authenticator gets their keys.
            clock: monotonic seconds.
            context: returns how issuers' servers are verified.
            networks: networks whose addresses are taken although they are the router's own machine's.
        """
        self._state = state
        self._clock = clock
        self._context = context
        self._networks = networks
        self._table: RoutingTable | None = None
        """The table that was processed last."""
        self._wanted: frozenset[IssuerId] = frozenset()
        """The issuers that it names, which takes as long to find as the table is."""
        self._reading: dict[IssuerId, asyncio.Task[None]] = {}
        self._due: dict[IssuerId, float] = {}
        """Issuer → when its keys are to be read again."""
        self._began: dict[IssuerId, float] = {}
        """Issuer → when the last read of its keys began."""
        self._backoff: dict[IssuerId, float] = {}
        """Issuer → seconds to wait after another failure, where the last read failed."""
        state.untried.add(ISSUERS)

    def table_changed(self) -> None:
        """Look at the table at once: it may name other issuers, or none."""
        self._look(self._clock())

    async def run(self) -> None:
        """Follow until cancelled."""
        try:
            while True:
                if self._state.loaded:
                    self._look(self._clock())
                await asyncio.sleep(LOOK_SECONDS)
        finally:
            for task in self._reading.values():
                task.cancel()
            await asyncio.gather(*self._reading.values(), return_exceptions=True)

    def _look(self, now: float) -> None:
        """Begin the reads that are due, or that a token needs."""
        read = features_of(self._state).authenticator.issuers
        table = self._state.index.table
        if table is not self._table:
            self._table, self._wanted = table, issuers(table, features_of(self._state).authenticator.default)
        desired = self._wanted
        for issuer_id in read.keys() - desired:
            del read[issuer_id]
            for times in (self._due, self._began, self._backoff):
                times.pop(issuer_id, None)
        for issuer_id in desired:
            issuer = read.setdefault(issuer_id, Issuer())
            may_hurry = issuer_id not in self._backoff and now >= self._began.get(issuer_id, -inf) + REFRESH_SECONDS
            due = now >= self._due.get(issuer_id, now)
            if (due or (issuer.wanted and may_hurry)) and issuer_id not in self._reading:
                self._began[issuer_id] = now
                self._reading[issuer_id] = asyncio.get_running_loop().create_task(self._read(issuer_id, issuer))
        if all(issuer.tried for issuer in read.values()):
            self._state.untried.discard(ISSUERS)

    async def _read(self, issuer_id: IssuerId, issuer: Issuer) -> None:
        before, requested_at = self._backoff.get(issuer_id), self._clock()
        try:
            content = await get(issuer_id.jwks_uri, self._context(), MAX_JWKS_BYTES, self._networks)
            issuer.learn(content, requested_at)
        except (DocumentError, TokenError, OSError) as error:
            self._state.metrics.key_errors.add("issuer")
            wait = before or FIRST_BACKOFF
            self._backoff[issuer_id] = min(LAST_BACKOFF, 2 * wait)
            if before is None:
                about = fields(url=issuer_id.jwks_uri, problem=error)
                log.warning("keys of an issuer cannot be read: the last ones hold", extra=about)
        else:
            wait = FOLLOW_SECONDS
            if self._backoff.pop(issuer_id, None) is not None:
                log.info("keys of an issuer are read again", extra=fields(url=issuer_id.jwks_uri))
        finally:
            issuer.tried = True
            issuer.away = issuer_id in self._backoff
            del self._reading[issuer_id]
        self._due[issuer_id] = self._clock() + wait * random.uniform(0.75, 1.0)  # noqa: S311 - spreads load, no secret
        for listener in features_of(self._state).authenticator.on_keys:
            listener()
