"""Prometheus as the source of loads.

A pass waits a moment for an answer, and not at all while Prometheus is failing: it goes on with the last answer, as
long as that is fresh. The client is prometheus-api-client's, over a session that bounds each answer as a whole.
"""

import logging
import threading
from concurrent.futures import Future, ThreadPoolExecutor, wait
from datetime import datetime, timedelta
from pathlib import Path
from typing import Any
from urllib.parse import urlsplit

import requests
import urllib3
from prometheus_api_client.exceptions import PrometheusApiClientException
from prometheus_api_client.prometheus_connect import PrometheusConnect
from requests.adapters import HTTPAdapter
from urllib3.util.retry import Retry

from promptgroup_operator.base import deadline
from promptgroup_operator.base.settings import Settings
from promptgroup_operator.load import promql
from promptgroup_operator.load.engine_history import EngineHistory, RevisionKey
from promptgroup_operator.load.load_source import LoadSubject
from promptgroup_operator.world.load import PERIOD, GroupLoad

logger = logging.getLogger(__name__)

PATIENCE = 1.0
"""Seconds that a pass waits for an answer; Prometheus takes some ten milliseconds. A later one serves the next pass."""
FRESH = 2 * PERIOD
"""Age up to which an answer is used."""
KEPT = timedelta(minutes=10)
"""Time after which the answers about a revision that nobody asks for are dropped."""
ASKERS = 4
"""Queries that run at the same time."""
MAX_ANSWER = 4 << 20
"""Most bytes of an answer: a hundred for each of a thousand pods, with room."""


class BearerToken(requests.auth.AuthBase):
    """A bearer token from a file, which is read for each request, because it is rotated."""

    def __init__(self, path: Path) -> None:
        self._path = path

    def __call__(self, request: requests.PreparedRequest) -> requests.PreparedRequest:
        """Add the header."""
        request.headers["Authorization"] = f"Bearer {self._path.read_text().strip()}"
        return request


class PrometheusError(Exception):
    """Prometheus did not answer, or its answer cannot be used; the message says why."""


class _StatusError(Exception):
    def __init__(self, status: int) -> None:
        super().__init__(f"status {status}")


_FAILURES = (
    _StatusError,
    PrometheusApiClientException,
    RecursionError,
    OSError,
    ValueError,
    KeyError,
    TypeError,
    IndexError,
)
"""Errors of a query that is not answered, or not by Prometheus; the errors of `requests` are OSErrors."""


class _Adapter(HTTPAdapter):
    def init_poolmanager(self, *args: Any, **options: Any) -> None:
        super().init_poolmanager(*args, **options)
        deadline.keep(self.poolmanager)


class _Session(requests.Session):
    """A session whose answers end within `seconds` and MAX_ANSWER bytes."""

    def __init__(self, seconds: float) -> None:
        super().__init__()
        self._seconds = seconds
        self.trust_env = False  # neither ~/.netrc nor the environment changes who is asked, and as whom
        self.max_redirects = 0  # a token goes to nobody else
        self.headers["Accept-Encoding"] = "identity"

    def mount(self, prefix: str, adapter: requests.adapters.BaseAdapter) -> None:
        """Replace the adapter that the client library mounts by one whose connections keep the deadline."""
        super().mount(prefix, _Adapter(max_retries=Retry(0)))  # the next pass asks again

    def send(self, request: requests.PreparedRequest, **options: Any) -> requests.Response:
        """Send a request and read its answer.

        Raises:
            _StatusError: the status is not 200.
            requests.RequestException: there was no answer in time, or a longer one.
        """
        with deadline.within(self._seconds, MAX_ANSWER):
            response = super().send(request, **{**options, "stream": True})
            try:
                if response.status_code != 200:
                    raise _StatusError(response.status_code)
                body = response.raw.read(MAX_ANSWER + 1, decode_content=False)
            except urllib3.exceptions.HTTPError as error:
                raise requests.ConnectionError(type(error).__name__) from error
            finally:
                response.close()
        if len(body) > MAX_ANSWER:
            raise requests.exceptions.ContentDecodingError("the answer is too long")
        response._content = body  # noqa: SLF001 - what `requests` sets when it reads an answer itself
        return response


def redacted_url(url: str) -> str:
    """Return the address as people may see it: without user, password and query."""
    parts = urlsplit(url)
    return f"{parts.scheme}://{parts.netloc.rpartition('@')[2]}{parts.path}".rstrip("/")


class Prometheus:
    """A source of loads; see `LoadSource`. Safe to use from many threads.

    Args:
        settings: where Prometheus is, and how to ask it.
        history: the operator's own requests to engines, which are subtracted.
    """

    def __init__(self, settings: Settings, history: EngineHistory) -> None:
        self._url = redacted_url(settings.prometheus_url)
        self._selector = settings.prometheus_selector
        self._router_namespaces = settings.router_namespaces
        self._history = history
        url = settings.prometheus_url.rstrip("/")
        session = _Session(settings.prometheus_timeout)
        session.verify = str(settings.prometheus_ca_file) if settings.prometheus_ca_file is not None else True
        session.auth = BearerToken(settings.prometheus_token_file) if settings.prometheus_token_file else None
        self._client = PrometheusConnect(
            url=url,
            session=session,
            timeout=settings.prometheus_timeout,  # type: ignore[arg-type]  # requests takes fractions
        )
        self._pool = ThreadPoolExecutor(ASKERS, thread_name_prefix="prometheus")
        self._lock = threading.Lock()
        self._asked: dict[RevisionKey, tuple[datetime, Future[None]]] = {}
        self._answers: dict[RevisionKey, tuple[datetime, GroupLoad]] = {}
        self._trouble: tuple[datetime, str] | None = None
        """Since when it does not answer, and why."""

    def close(self) -> None:
        """Send no more queries; those that run end by their own deadlines."""
        self._pool.shutdown(wait=False, cancel_futures=True)
        self._client.close()

    def load(self, subject: LoadSubject, now: datetime) -> GroupLoad:
        """Return what Prometheus knows of a revision; waits for PATIENCE at most."""
        key = (subject.key, subject.fingerprint)
        with self._lock:
            at, flight = self._asked.get(key, (None, None))
            for old in [each for each, (asked, _) in self._asked.items() if now - asked > KEPT]:
                del self._asked[old]
                self._answers.pop(old, None)
            if flight is None or (flight.done() and (at is None or now - at >= PERIOD)):
                flight = self._pool.submit(self._ask, key, subject, now)
                self._asked[key] = now, flight
            patience = PATIENCE if self._trouble is None else 0.0
        wait([flight], patience)
        with self._lock:
            known, trouble = self._answers.get(key), self._trouble
        if known is not None and now - known[0] <= FRESH:
            return known[1]
        if trouble is not None:
            why = f"Prometheus at {self._url} does not answer since {trouble[0]:%H:%M} UTC: {trouble[1]}"
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
        """Return what Prometheus knows of a revision; waits for the answer.

        Raises:
            Unanswered: there is none; says why.
        """
        try:
            return self._load(subject, now)
        except _FAILURES as error:
            raise PrometheusError(_reason(error)) from None

    def _load(self, subject: LoadSubject, now: datetime) -> GroupLoad:
        seconds, since = promql.WINDOW.total_seconds(), now - promql.WINDOW
        found = self._answers_to(
            promql.engine_queries(subject.names, subject.key.namespace, subject.deployment, self._selector), now
        )
        newest = promql.newest(found)
        if newest is None:
            return GroupLoad(seconds, None, stale=f"Prometheus at {self._url} has no engine of this group")
        if now.timestamp() - newest > promql.STALE.total_seconds():
            at = datetime.fromtimestamp(newest, now.tzinfo)
            return GroupLoad(seconds, None, stale=f"Prometheus at {self._url} has nothing newer than {at:%H:%M} UTC")
        own = self._history.own(subject.serving, since)
        told = self._answers_to(
            promql.router_queries(subject.key, subject.revision, self._router_namespaces, self._selector), now
        )
        return GroupLoad(
            seconds,
            promql.engines(found, subject.pods, own, subject.known, now),
            clients=promql.clients(told, subject.known.prefix_tokens),
            departure=promql.departure(told, subject.declared_bytes),
        )

    def _answers_to(self, queries: list[promql.PromQuery], now: datetime) -> promql.Answer:
        return [each for query in queries for each in self._answer(query.text(), now)]

    def _answer(self, query: str, now: datetime) -> promql.Answer:
        return promql.parse_result(self._client.custom_query(query, params={"time": f"{now.timestamp():.3f}"}))


def _reason(error: Exception) -> str:
    """Return why there is no answer: never the server's own words, which may hold anything."""
    match error:
        case _StatusError():
            return str(error)
        case requests.JSONDecodeError():
            return "the answer is not one of Prometheus"
        case requests.RequestException():
            return type(error).__name__
        case OSError():
            return f"its token or CA file cannot be read ({type(error).__name__})"
        case _:
            return "the answer is not one of Prometheus"
