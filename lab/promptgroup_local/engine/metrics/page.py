"""Prometheus metrics of one engine, and the stand-in's own count of cold prefixes: the common part of all dialects."""

import enum
from collections.abc import Callable
from dataclasses import dataclass

from prometheus_client import CollectorRegistry, Counter, Gauge, Histogram

from promptgroup_local.engine.answer import Finish


class Source(enum.StrEnum):
    """The sender of a request."""

    CLIENT = "client"
    WARMUP = "warmup"


@dataclass(frozen=True, slots=True)
class Gauges:
    """The values that are read at the time of a scrape."""

    running: Callable[[], float]
    waiting: Callable[[], float]
    usage: Callable[[], float]
    """Share of the KV cache that running requests hold."""


@dataclass(frozen=True, slots=True)
class Served:
    """A request that ended by itself. Times in seconds."""

    finish: Finish
    prompt: int
    """Tokens of its prompt."""
    cached: int
    """Tokens of the prompt that were cached."""
    generated: int
    queue: float
    """Arrival to admission."""
    prefill: float
    """Admission to first token."""
    decode: float
    """First token to last token."""
    copied: int = 0
    """Tokens of `cached` that were copied from a second tier."""
    streamed: bool = False
    """True if its answer was a stream."""


class Metrics:
    """All series of one engine, in a registry of their own. Events that an engine does not count are ignored."""

    def __init__(self, labels: dict[str, str]) -> None:
        self.registry = CollectorRegistry()
        self._labels = labels
        requests = Counter("standin_requests", "Requests that ran", ["source"], registry=self.registry)
        cold = Counter(
            "standin_cold_prefix_requests",
            "Requests whose cached tokens did not cover their tools and system text",
            ["source"],
            registry=self.registry,
        )
        self.requests = {source: requests.labels(source=source.value) for source in Source}
        self.cold = {source: cold.labels(source=source.value) for source in Source}

    def entered(self, method: str, path: str) -> None:
        """An HTTP request arrived."""

    def left(self, method: str, path: str) -> None:
        """It was answered completely, or its client disconnected."""

    def stepped(self, admitted: int) -> None:
        """A step began, which admits so many requests."""

    def rested(self) -> None:
        """There is nothing to do."""

    def evicted(self, tokens: int) -> None:
        """So many cached tokens were evicted."""

    def preempted(self, requests: int) -> None:
        """So many requests were preempted."""

    def first_token(self, queue: float, prefill: float, prompt: int, cached: int, *, streamed: bool = False) -> None:
        """A prompt is computed, after so many seconds of waiting and so many of prefill."""

    def served(self, request: Served) -> None:
        """A request ended by itself."""

    def admitted(self, prompt: int, cached: int, copied: int = 0) -> None:
        """A prompt was looked up in the prefix cache, and then in the second tier."""

    def token(self) -> None:
        """A token was generated."""

    def later_token(self, seconds: float) -> None:
        """A token that is not the first of its answer, so long after the one before."""

    def aborted(self) -> None:
        """The client of a request left."""

    def _counter(self, name: str, documentation: str, **more: str) -> Counter:
        labels = self._labels | more
        return Counter(name, documentation, list(labels), registry=self.registry).labels(**labels)

    def _gauge(self, name: str, documentation: str) -> Gauge:
        return Gauge(name, documentation, list(self._labels), registry=self.registry).labels(**self._labels)

    def _histogram(self, name: str, documentation: str, bounds: tuple[float, ...], **more: str) -> Histogram:
        labels = self._labels | more
        return Histogram(name, documentation, list(labels), registry=self.registry, buckets=bounds).labels(**labels)

    def _info(self, name: str, documentation: str, config: dict[str, str]) -> None:
        Gauge(name, documentation, list(config), registry=self.registry).labels(**config).set(1)
