"""`cache_salt`: requests with different salts share no cache (vLLM, SGLang)."""

import re
from collections.abc import Iterator

import xxhash

from promptgroup_cli.lint import volatile
from promptgroup_cli.lint.finding import Finding, FindingPlace, Rule, Severity
from promptgroup_cli.lint.subject import LintSubject

CACHE_SALT = Rule(
    "cache-salt",
    Severity.WARNING,
    "a cache_salt that differs between requests",
    "requests share a cache within one salt only: with another one on each request nothing is ever found",
    "one salt a tenant, from what authenticates the caller; none where callers may share",
)
RULES = (CACHE_SALT,)

TRACKED = 4096
"""Different salts that are counted; the share of new ones among the requests until then decides."""
FEWEST = 10
"""Fewest requests with a salt for a finding about their share."""
LARGE = 0.5
"""Different salts per request from which on they count as salts of requests, not of tenants."""


class Salting:
    """The salts of all requests."""

    def __init__(self) -> None:
        self._salts: set[int] = set()
        self._requests = 0
        self._first: FindingPlace | None = None
        self._looks_volatile = False

    def see(self, subject: LintSubject) -> None:
        """Count a request's salt."""
        salt = subject.ask.doc.get("cache_salt") if subject.ask is not None else None
        if not isinstance(salt, str) or not salt or len(self._salts) >= TRACKED:
            return
        self._requests += 1
        self._salts.add(xxhash.xxh3_64_intdigest(salt.encode()))
        if self._first is None:
            self._first = FindingPlace(subject.file, subject.line, "cache_salt", 0)
            self._looks_volatile = re.search("[0-9]", salt) is not None and bool(volatile.tokens(salt))

    def findings(self) -> Iterator[Finding]:
        """Yield a finding if salts differ between requests."""
        if self._first is None:
            return
        different, requests = len(self._salts), self._requests
        if requests < FEWEST:
            if self._looks_volatile:
                text = "a cache_salt that looks like a time or a random id: is it another one on each request?"
                yield Finding(CACHE_SALT, Severity.NOTE, self._first, text, requests)
        elif different >= LARGE * requests:
            text = f"{different} different salts in {requests} requests"
            yield Finding(CACHE_SALT, Severity.ERROR, self._first, text, requests)
