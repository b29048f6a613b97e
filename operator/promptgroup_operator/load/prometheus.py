"""Prometheus as the source of loads.

A pass waits PATIENCE for an answer, and not at all while Prometheus fails: it then uses the last answer if that is not
older than FRESH.
"""

import logging
import threading
from collections.abc import Iterator
from concurrent.futures import Future, ThreadPoolExecutor, wait
from datetime import datetime, timedelta

from promptgroup_operator.base.settings import Settings
from promptgroup_operator.load import guest_load, promql
from promptgroup_operator.load.engine_history import EngineHistory, RevisionKey
from promptgroup_operator.load.load_source import LoadSubject
from promptgroup_operator.load.prometheus_api import NOT_PROMETHEUS, PrometheusApi, PrometheusError
from promptgroup_operator.world.load import PERIOD, ClientLoad, GroupLoad, summed
from promptgroup_operator.world.snapshot import GuestSubject

logger = logging.getLogger(__name__)

PATIENCE = 1.0
"""Seconds that a pass waits for an answer, which takes some ten milliseconds. A later one serves the next pass."""
FRESH = 2 * PERIOD
"""Maximum age of an answer that is used."""
UNUSED = timedelta(minutes=10)
"""Time without a query after which the answers about a revision are deleted."""
GUESTS_A_QUERY = 20
"""Maximum number of guests in one query, so that their names fit into the request's URL."""
ASKERS = 4
"""Maximum number of concurrent queries."""


class Prometheus:
    """A source of loads; see `LoadSource`. Safe to use from many threads.

    Args:
        settings: address, credentials and selector for Prometheus.
        history: the operator's own requests to engines, which are subtracted.
    """

    def __init__(self, settings: Settings, history: EngineHistory) -> None:
        self._api = PrometheusApi(settings)
        self._url = self._api.url
        self._selector = settings.prometheus_selector
        self._router_namespaces = settings.router_namespaces
        self._history = history
        self._pool = ThreadPoolExecutor(ASKERS, thread_name_prefix="prometheus")
        self._lock = threading.Lock()
        self._queries: dict[RevisionKey, tuple[datetime, Future[None]]] = {}
        self._answers: dict[RevisionKey, tuple[datetime, GroupLoad]] = {}
        self._trouble: tuple[datetime, str] | None = None
        """Time since which queries fail, and the reason."""

    def close(self) -> None:
        """Send no more queries; running queries end by their own deadlines."""
        self._pool.shutdown(wait=False, cancel_futures=True)
        self._api.close()

    def load(self, subject: LoadSubject, now: datetime) -> GroupLoad:
        """Return the load of a revision from Prometheus; wait for PATIENCE at most."""
        key = (subject.key, subject.fingerprint)
        with self._lock:
            at, flight = self._queries.get(key, (None, None))
            for old in [item for item, (requested, _) in self._queries.items() if now - requested > UNUSED]:
                del self._queries[old]
                self._answers.pop(old, None)
            if flight is None or (flight.done() and (at is None or now - at >= PERIOD)):
                flight = self._pool.submit(self._ask, key, subject, now)
                self._queries[key] = now, flight
            patience = PATIENCE if self._trouble is None else 0.0
        wait([flight], patience)
        with self._lock:
            answer, trouble = self._answers.get(key), self._trouble
        if answer is not None and now - answer[0] <= FRESH:
            return answer[1]
        if trouble is not None:
            why = f"Prometheus at {self._url} has not answered since {trouble[0]:%H:%M} UTC: {trouble[1]}"
        else:
            why = f"Prometheus at {self._url} has not answered yet"
        return GroupLoad(promql.WINDOW.total_seconds(), None, stale=why, early=trouble is None)

    def _ask(self, key: RevisionKey, subject: LoadSubject, now: datetime) -> None:
        try:
            load = self.ask(subject, now)
        except PrometheusError as error:
            self._fail(str(error), now)
            return
        except Exception:
            logger.exception("Prometheus at %s", self._url)
            self._fail("its answer is not understood", now)
            return
        with self._lock:
            self._trouble = None
            self._answers[key] = now, load

    def _fail(self, why: str, now: datetime) -> None:
        with self._lock:
            if self._trouble is None:
                logger.warning("Prometheus at %s: %s", self._url, why)
            self._trouble = (self._trouble[0] if self._trouble is not None else now), why

    def ask(self, subject: LoadSubject, now: datetime) -> GroupLoad:
        """Query the load of a revision from Prometheus, and wait for the answer.

        Raises:
            PrometheusError: the query failed; the message has the reason.
        """
        try:
            return self._load(subject, now)
        except (ValueError, KeyError, TypeError, IndexError):  # series with other labels than requested
            raise PrometheusError(NOT_PROMETHEUS) from None

    def _load(self, subject: LoadSubject, now: datetime) -> GroupLoad:
        if subject.is_guest:
            return self._guest_load(subject, now)
        seconds, since = promql.WINDOW.total_seconds(), now - promql.WINDOW
        answers_to = self._answers_to(
            promql.engine_queries(subject.names, subject.key.namespace, subject.deployment, self._selector), now
        )
        newest = promql.newest(answers_to)
        if newest is None:
            return GroupLoad(seconds, None, stale=f"Prometheus at {self._url} has no engine of this group")
        if now.timestamp() - newest > promql.STALE.total_seconds():
            at = datetime.fromtimestamp(newest, now.tzinfo)
            return GroupLoad(seconds, None, stale=f"Prometheus at {self._url} has nothing newer than {at:%H:%M} UTC")
        own = self._history.own(subject.serving, since)
        of_routers = self._of_routers(subject, now)
        clients = [promql.clients(of_routers, subject.measured.prefix_tokens), *self._clients_of_guests(subject, now)]
        return GroupLoad(
            seconds,
            promql.engines(answers_to, subject.pods, own, subject.measured, now),
            clients=summed([load for load in clients if load is not None]),
            drift=promql.drift(of_routers, subject.declared_bytes),
        )

    def _guest_load(self, subject: LoadSubject, now: datetime) -> GroupLoad:
        of_routers = self._of_routers(subject, now)
        clients = promql.clients(of_routers, subject.measured.prefix_tokens)
        drift = promql.drift(of_routers, subject.declared_bytes)
        return guest_load.load(clients, drift, len(subject.serving), subject.measured, promql.WINDOW)

    def _of_routers(self, subject: LoadSubject, now: datetime) -> promql.Answer:
        own = GuestSubject(subject.key, subject.revision, subject.measured.prefix_tokens)
        return self._answers_to(promql.router_queries([own], self._router_namespaces, self._selector), now)

    def _clients_of_guests(self, subject: LoadSubject, now: datetime) -> Iterator[ClientLoad | None]:
        """Yield the load of the clients of a host's guests, summed over up to GUESTS_A_QUERY guests at a time."""
        for first in range(0, len(subject.guests), GUESTS_A_QUERY):
            guests = subject.guests[first : first + GUESTS_A_QUERY]
            answers_to = self._answers_to(promql.router_queries(guests, self._router_namespaces, self._selector), now)
            tokens = round(sum(guest.tokens for guest in guests) / len(guests))
            yield promql.clients(answers_to, tokens)

    def _answers_to(self, queries: list[promql.PromQuery], now: datetime) -> promql.Answer:
        return [item for query in queries for item in self._api.query(query.text(), now)]
