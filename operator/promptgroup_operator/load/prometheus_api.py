"""A thin client of Prometheus: one query, one answer, both bounded.

It is prometheus-api-client's `custom_query` and `custom_query_range`, over a session that limits each response by a
deadline and a size in bytes, and follows no redirects. `docs/development/decisions/0067` lists the purpose of each
query, and explains why the library's other functions are not used.
"""

from datetime import datetime
from pathlib import Path
from typing import Any

import requests
import urllib3
from prometheus_api_client.exceptions import PrometheusApiClientException
from prometheus_api_client.prometheus_connect import PrometheusConnect
from requests.adapters import HTTPAdapter
from urllib3.util.retry import Retry

from promptgroup_operator.base import deadline
from promptgroup_operator.base.redacted_url import redacted_url
from promptgroup_operator.base.settings import Settings
from promptgroup_operator.base.unreachable import reason
from promptgroup_operator.load import promql

MAX_ANSWER = 4 << 20
"""Maximum size of a response in bytes: a hundred bytes for each of a thousand pods, with a large margin."""
MAX_TOKEN = 64 << 10
"""Maximum number of characters in a token file."""


NOT_PROMETHEUS = "the answer is not in Prometheus's format"


class PrometheusError(Exception):
    """A query failed, or its response cannot be used; the message has the reason."""


class _LongAnswerError(Exception):
    def __init__(self) -> None:
        super().__init__(f"the answer is longer than {MAX_ANSWER >> 20} MiB")


class _StatusError(Exception):
    def __init__(self, status: int) -> None:
        super().__init__(f"status {status}")


_FAILURES = (
    _StatusError,
    _LongAnswerError,
    PrometheusApiClientException,
    RecursionError,
    OSError,
    ValueError,
    KeyError,
    TypeError,
    IndexError,
)
"""Errors of a query without a response, or with one that is not Prometheus'; the errors of `requests` are OSErrors."""


class _Adapter(HTTPAdapter):
    def init_poolmanager(self, *args: Any, **options: Any) -> None:
        super().init_poolmanager(*args, **options)
        deadline.keep(self.poolmanager)


class _Session(requests.Session):
    """A session whose responses end within `seconds` and have MAX_ANSWER bytes at most."""

    def __init__(self, seconds: float) -> None:
        super().__init__()
        self._seconds = seconds
        self.trust_env = False  # ~/.netrc and the environment change neither the server nor the credentials
        self.max_redirects = 0  # the token is sent to no other server
        self.headers["Accept-Encoding"] = "identity"

    def mount(self, prefix: str, adapter: requests.adapters.BaseAdapter) -> None:
        """Replace the adapter that the client library mounts by one whose connections enforce the deadline."""
        super().mount(prefix, _Adapter(max_retries=Retry(0)))  # the next pass retries

    def send(self, request: requests.PreparedRequest, **options: Any) -> requests.Response:
        """Send a request and read its response.

        Raises:
            _StatusError: the status is not 200.
            _LongAnswerError: the response is longer than MAX_ANSWER.
            requests.RequestException: there was no response in time, or a longer one.
        """
        with deadline.within(self._seconds, MAX_ANSWER):
            response = super().send(request, **{**options, "stream": True})
            try:
                if response.status_code != 200:
                    raise _StatusError(response.status_code)
                body = response.raw.read(MAX_ANSWER + 1, decode_content=False)
            except urllib3.exceptions.HTTPError as error:
                raise requests.ConnectionError(error) from error
            finally:
                response.close()
        if len(body) > MAX_ANSWER:
            raise _LongAnswerError
        response._content = body  # noqa: SLF001 - `requests` sets this when it reads a response itself
        return response


class BearerToken(requests.auth.AuthBase):
    """A bearer token from a file, which is read for each request, because it is rotated."""

    def __init__(self, path: Path) -> None:
        self._path = path

    def __call__(self, request: requests.PreparedRequest) -> requests.PreparedRequest:
        """Add the header."""
        with self._path.open() as file:
            token = file.read(MAX_TOKEN + 1)
        if len(token) > MAX_TOKEN:
            raise OSError(f"{self._path} has more than {MAX_TOKEN:,} characters, so it is not a token")
        request.headers["Authorization"] = f"Bearer {token.strip()}"
        return request


class PrometheusApi:
    """The query API of one server. Safe to use from many threads.

    Args:
        settings: address and credentials of Prometheus.
    """

    def __init__(self, settings: Settings) -> None:
        self.url = redacted_url(settings.prometheus_url)
        session = _Session(settings.prometheus_timeout)
        session.verify = str(settings.prometheus_ca_file) if settings.prometheus_ca_file is not None else True
        session.auth = BearerToken(settings.prometheus_token_file) if settings.prometheus_token_file else None
        self._client = PrometheusConnect(
            url=settings.prometheus_url.rstrip("/"),
            session=session,
            timeout=settings.prometheus_timeout,  # type: ignore[arg-type]  # requests takes fractions
        )

    def close(self) -> None:
        """Close the connections."""
        self._client.close()

    def query(self, text: str, at: datetime) -> promql.Answer:
        """Return the values of an instant query.

        Raises:
            PrometheusError: there is no response, or it is not in Prometheus' format.
        """
        try:
            return promql.parse_result(self._client.custom_query(text, params={"time": f"{at.timestamp():.3f}"}))
        except _FAILURES as error:
            raise PrometheusError(_reason(error)) from None

    def query_range(self, text: str, start: datetime, end: datetime, step: int) -> promql.Ranges:
        """Return the values of a query over time, one for each `step` seconds.

        Raises:
            PrometheusError: there is no response, or it is not in Prometheus' format.
        """
        try:
            return promql.parse_range(self._client.custom_query_range(text, start, end, f"{step}s"))
        except _FAILURES as error:
            raise PrometheusError(_reason(error)) from None


def _reason(error: Exception) -> str:
    """Return the reason of a failure, never with the server's own text, which cannot be trusted."""
    match error:
        case _StatusError() | _LongAnswerError():
            return str(error)
        case requests.JSONDecodeError():
            return NOT_PROMETHEUS
        case requests.RequestException():
            return reason(error)
        case OSError():
            return f"its token or CA file cannot be read ({error.strerror or type(error).__name__})"
        case _:
            return NOT_PROMETHEUS
