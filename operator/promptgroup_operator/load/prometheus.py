"""Prometheus as the source of loads.

A pass waits a moment for an answer, and not at all while Prometheus is in trouble: it goes on with what was known, for
as long as that is of now.
"""

import logging
import re
import threading
from concurrent.futures import Future, ThreadPoolExecutor, wait
from datetime import datetime, timedelta
from pathlib import Path
from urllib.parse import urlsplit

import requests
from prometheus_api_client.exceptions import PrometheusApiClientException
from prometheus_api_client.prometheus_connect import PrometheusConnect
from urllib3.util.retry import Retry

from promptgroup_operator.base.settings import Settings
from promptgroup_operator.load import promql
from promptgroup_operator.load.engine_history import EngineHistory
from promptgroup_operator.load.load_source import LoadSubject
from promptgroup_operator.world.load import PERIOD, GroupLoad

logger = logging.getLogger(__name__)

PATIENCE = 1.0
"""Seconds that a pass waits for an answer; Prometheus takes some ten milliseconds. A later one serves the next pass."""
FRESH = 2 * PERIOD
"""An answer that is older is not of now."""
KEPT = timedelta(minutes=10)
"""Answers about revisions that nobody asks for any more are dropped."""
ASKERS = 4
"""Questions under way at a time."""

_STATUS = re.compile(r"HTTP Status Code (\d{3})")


_FAILURES = (PrometheusApiClientException, OSError, ValueError, KeyError, TypeError, IndexError)
"""What comes of a question that is not answered, or by something else than Prometheus; requests' own are OSErrors."""


class BearerToken(requests.auth.AuthBase):
    """A bearer token from a file, which is read anew for each request: it is rotated."""

    def __init__(self, path: Path) -> None:
        self._path = path

    def __call__(self, request: requests.PreparedRequest) -> requests.PreparedRequest:
        """Add the header."""
        request.headers["Authorization"] = f"Bearer {self._path.read_text().strip()}"
        return request


class PrometheusError(Exception):
    """Prometheus could not be asked, or what it said is no answer."""


def redacted_url(url: str) -> str:
    """The address as people may see it: without user, password, query."""
    parts = urlsplit(url)
    return f"{parts.scheme}://{parts.netloc.rpartition('@')[2]}{parts.path}".rstrip("/")


class Prometheus:
    """A source of loads; see `sources.Source`."""

    def __init__(self, settings: Settings, observations: EngineHistory) -> None:
        self._url = redacted_url(settings.prometheus_url)
        self._selector = settings.prometheus_selector
        self._observations = observations
        session = requests.Session()
        session.trust_env = False  # neither ~/.netrc nor the environment changes who is asked, and as whom
        session.max_redirects = 0  # a token goes to nobody else
        session.verify = str(settings.prometheus_ca_file) if settings.prometheus_ca_file is not None else True
        session.auth = (
            BearerToken(settings.prometheus_token_file) if settings.prometheus_token_file is not None else None
        )
        self._client = PrometheusConnect(
            url=settings.prometheus_url.rstrip("/"),
            retry=Retry(0),  # the next pass asks again
            session=session,
            timeout=settings.prometheus_timeout,  # type: ignore[arg-type]  # requests takes fractions
        )
        self._pool = ThreadPoolExecutor(ASKERS, thread_name_prefix="prometheus")
        self._lock = threading.Lock()
        self._asked: dict[tuple[str, ...], tuple[datetime, Future[None]]] = {}
        self._answers: dict[tuple[str, ...], tuple[datetime, GroupLoad]] = {}
        self._trouble: tuple[datetime, str] | None = None
        """Since when it does not answer, and what came instead."""

    def close(self) -> None:
        """Ask no more; what is under way ends by its own time limits."""
        self._pool.shutdown(wait=False, cancel_futures=True)
        self._client.close()

    def load(self, subject: LoadSubject, now: datetime) -> GroupLoad:
        """What Prometheus knows of a revision."""
        key = (subject.key.namespace, subject.key.name, subject.fingerprint)
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

    def _ask(self, key: tuple[str, ...], subject: LoadSubject, now: datetime) -> None:
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
        """The same as `load`, waiting for the answer.

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
        own = self._observations.own(subject.serving, since)
        told = self._answers_to(
            promql.router_queries(f"{subject.key.namespace}/{subject.key.name}", subject.revision, self._selector), now
        )
        return GroupLoad(
            seconds,
            promql.engines(found, subject.pods, own, subject.known, now),
            clients=promql.clients(told, subject.known.prefix_tokens),
            departure=promql.departure(told, subject.declared_bytes),
        )

    def _answers_to(self, questions: list[promql.PromQuery], now: datetime) -> promql.Answer:
        return [each for question in questions for each in self._answer(question.text(), now)]

    def _answer(self, query: str, now: datetime) -> promql.Answer:
        return promql.parse_result(self._client.custom_query(query, params={"time": f"{now.timestamp():.3f}"}))


def _reason(error: Exception) -> str:
    """What people are told: never the server's own words, which may hold anything."""
    match error:
        case PrometheusApiClientException():
            status = _STATUS.search(str(error))
            return f"status {status[1]}" if status is not None else "no result"
        case requests.JSONDecodeError():
            return "the answer is none of Prometheus"
        case requests.RequestException():
            return type(error).__name__
        case OSError():
            return f"its token or CA file cannot be read ({type(error).__name__})"
        case _:
            return "the answer is none of Prometheus"
