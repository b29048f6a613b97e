"""Connections to engines: plain HTTP, or TLS that is verified by the authorities of the engine's group."""

import ssl
import threading
from collections.abc import Iterable
from typing import Any, NamedTuple

import urllib3

from promptgroup_operator.base import deadline
from promptgroup_operator.base.errors import EngineError


class Trust(NamedTuple):
    """The rule by which an engine that serves TLS is verified."""

    bundle: str
    """Certificate authorities in PEM; empty while they are unknown."""
    server_name: str
    """The name that its certificate must have; empty for its address."""


class EngineAccess(NamedTuple):
    """The credential and the TLS trust for requests to one engine."""

    credential: str = ""
    """Bearer token; empty for none."""
    trust: Trust | None = None
    """None where it serves plain HTTP."""


PLAIN = EngineAccess()


class EnginePools:
    """Connections to engines. Safe to use from many threads."""

    def __init__(self) -> None:
        self._plain = deadline.keep(_manager())
        self._secure: dict[Trust, urllib3.PoolManager] = {}
        """Connection pools by trust: a connection that was verified by one trust is not used for another."""
        self._lock = threading.Lock()

    def close(self) -> None:
        """Close the idle connections."""
        self.keep(())
        self._plain.clear()

    def keep(self, trusts: Iterable[Trust | None]) -> None:
        """Close the idle connections of all trusts that are not among these."""
        current = set(trusts)
        with self._lock:
            gone = [self._secure.pop(trust) for trust in self._secure.keys() - current]
        for manager in gone:
            manager.clear()

    def request(
        self, method: str, address: str, path: str, trust: Trust | None, **options: Any
    ) -> urllib3.BaseHTTPResponse:
        """Send a request to an engine and return the response.

        Raises:
            EngineError: the engine is not verified.
            urllib3.exceptions.HTTPError: there was no response.
        """
        if trust is None:
            return self._plain.request(method, f"http://{address}{path}", **options)
        try:
            return self._manager(trust).request(method, f"https://{address}{path}", **options)
        except urllib3.exceptions.SSLError as error:
            cause = error.args[0] if error.args else None
            if isinstance(cause, ssl.SSLCertVerificationError):
                raise EngineError(cause.verify_message, untrusted=True) from error
            reason = getattr(cause, "reason", None) or type(cause).__name__
            raise EngineError(f"{path}: the port does not speak TLS: {reason}") from error

    def _manager(self, trust: Trust) -> urllib3.PoolManager:
        with self._lock:
            verifying = self._secure.get(trust)
            if verifying is None:
                verifying = self._secure[trust] = _verifying(trust)
            return verifying


def _manager(**options: Any) -> urllib3.PoolManager:
    return urllib3.PoolManager(num_pools=64, maxsize=4, retries=False, **options)


def _verifying(trust: Trust) -> urllib3.PoolManager:
    """Return connections that are verified only by the trust's bundle."""
    try:
        ssl.SSLContext(ssl.PROTOCOL_TLS_CLIENT).load_verify_locations(cadata=trust.bundle)
    except (ssl.SSLError, ValueError):
        raise EngineError("its authorities are not known, or are no certificates in PEM", untrusted=True) from None
    return deadline.keep(
        _manager(cert_reqs=ssl.CERT_REQUIRED, ca_cert_data=trust.bundle, server_hostname=trust.server_name or None)
    )
