"""The router's metrics, and their text in Prometheus' exposition format. Does no I/O and reads no clock.

Label values come from the routing table and from fixed lists, never from clients: the table bounds their number.
"""

from bisect import bisect_left
from collections.abc import Collection, Iterable, Mapping
from itertools import accumulate

LATENCY_BUCKETS = (0.005, 0.01, 0.025, 0.05, 0.1, 0.25, 0.5, 1.0, 2.5, 5.0, 10.0, 30.0, 60.0, 120.0, 300.0, 600.0)
"""Seconds: from a cached first token on a small model to a long reasoning answer."""

FIRST_TOKEN_BUCKETS = tuple(round(0.005 * 2 ** (step / 2), 6) for step in range(34))
"""Seconds, 5 ms to 460 s in half octaves: a release is judged by quantiles, which are no finer than the buckets."""
CACHED_BUCKETS = tuple(tenth / 10 for tenth in range(11))
"""Shares of a prompt; the first bucket counts prompts of which nothing was cached."""

PREFIX = "promptgroup_router_"


class Counter:
    """A counter, or a gauge, by labels."""

    def __init__(self, name: str, help_text: str, labels: tuple[str, ...] = (), kind: str = "counter") -> None:
        self.name = PREFIX + name
        self._help = help_text
        self._labels = labels
        self._kind = kind
        self.values: dict[tuple[str, ...], float] = {} if labels else {(): 0}

    def add(self, *labels: str, amount: float = 1) -> None:
        """Add to the value of these labels."""
        self.values[labels] = self.values.get(labels, 0) + amount

    def keep(self, labels: tuple[str, ...], wanted: Collection[tuple[str, ...]]) -> None:
        """Drop the series whose first labels are these, and whose values of them are not wanted."""
        if self._labels[: len(labels)] == labels:
            self.values = {found: value for found, value in self.values.items() if found[: len(labels)] in wanted}

    def replace(self, values: Mapping[tuple[str, ...], float]) -> None:
        """Replace all values of a gauge."""
        self.values = dict(values)

    def lines(self) -> Iterable[str]:
        """Yield the lines of the exposition."""
        yield f"# HELP {self.name} {self._help}"
        yield f"# TYPE {self.name} {self._kind}"
        for labels, value in self.values.items():
            yield f"{self.name}{_braces(self._labels, labels)} {number(value)}"


class Observations:
    """Counts by bucket, and a sum, for one set of labels."""

    __slots__ = ("counts", "sum")

    def __init__(self, buckets: int) -> None:
        self.counts = [0] * buckets
        self.sum = 0.0


class LatencyHistogram:
    """A histogram by labels."""

    def __init__(
        self, name: str, help_text: str, labels: tuple[str, ...], buckets: tuple[float, ...] = LATENCY_BUCKETS
    ) -> None:
        self.name = PREFIX + name
        self._help = help_text
        self._labels = labels
        self._buckets = buckets
        self.values: dict[tuple[str, ...], Observations] = {}

    def observe(self, *labels: str, value: float) -> None:
        """Add an observation."""
        known = self.values.get(labels)
        if known is None:
            known = self.values[labels] = Observations(len(self._buckets) + 1)
        known.counts[bisect_left(self._buckets, value)] += 1
        known.sum += value

    def keep(self, labels: tuple[str, ...], wanted: Collection[tuple[str, ...]]) -> None:
        """Drop the series whose first labels are these, and whose values of them are not wanted."""
        if self._labels[: len(labels)] == labels:
            self.values = {found: value for found, value in self.values.items() if found[: len(labels)] in wanted}

    def lines(self) -> Iterable[str]:
        """Yield the lines of the exposition."""
        yield f"# HELP {self.name} {self._help}"
        yield f"# TYPE {self.name} histogram"
        bounds = [*(number(bound) for bound in self._buckets), "+Inf"]
        for labels, known in self.values.items():
            for bound, total in zip(bounds, accumulate(known.counts), strict=True):
                yield f"{self.name}_bucket{_braces((*self._labels, 'le'), (*labels, bound))} {total}"
            yield f"{self.name}_sum{_braces(self._labels, labels)} {number(known.sum)}"
            yield f"{self.name}_count{_braces(self._labels, labels)} {sum(known.counts)}"


class Metrics:
    """All metrics of the router."""

    def __init__(self) -> None:
        self.all: list[Counter | LatencyHistogram] = []
        """All of them, in the order of the exposition."""
        self.requests = self._counter("requests_total", "Requests ended, by status code sent.", ("group", "code"))
        self.cut = self._counter("answers_cut_total", "Answers that ended early, by who ended them.", ("group", "by"))
        self.prompt_tokens = self._counter("prompt_tokens_total", "Prompt tokens that engines reported.", ("group",))
        self.cached_tokens = self._counter(
            "cached_tokens_total", "Prompt tokens that engines found in their prefix cache.", ("group",)
        )
        self.first_byte = self._histogram(
            "time_to_first_byte_seconds", "From the whole request to the answer's first byte.", ("group",)
        )
        self.duration = self._histogram(
            "request_duration_seconds", "From the whole request to the answer's end.", ("group",)
        )
        self.revision_requests = self._counter(
            "revision_requests_total",
            "Requests ended whose client stayed, by how they were matched and what came of them.",
            ("group", "revision", "turn", "how", "streamed", "outcome"),
        )
        self.revision_first_token = self._histogram(
            "revision_first_token_seconds",
            "From the whole request to the answer's first byte, by revision: its first token where it is streamed.",
            ("group", "revision", "turn", "how", "streamed"),
            FIRST_TOKEN_BUCKETS,
        )
        self.revision_cached = self._histogram(
            "revision_cached_ratio",
            "Share of a prompt's tokens that the engine found in its prefix cache.",
            ("group", "revision", "turn", "how", "streamed"),
            CACHED_BUCKETS,
        )
        self.revision_prompt_tokens = self._counter(
            "revision_prompt_tokens_total", "Prompt tokens that engines reported, by revision.", ("group", "revision")
        )
        self.revision_sessions = self._counter(
            "revision_sessions",
            "Sessions that have come back, were served here last, and not long ago.",
            ("group", "revision"),
            "gauge",
        )
        self.revision_session_tokens = self._counter(
            "revision_session_tokens", "Their tokens beyond the declared prompt.", ("group", "revision"), "gauge"
        )
        self.revision_waiting = self._counter(
            "revision_waiting",
            "Requests that wait in the router for room now, by revision.",
            ("group", "revision"),
            "gauge",
        )
        self.near_miss = self._counter(
            "departed_requests_total", "Requests that match no group but come close to this one's prompt.", ("group",)
        )
        self.departed_at = self._counter(
            "departed_at_bytes",
            "Where such requests lately left the declared prompt: the median, in bytes from its beginning.",
            ("group",),
            "gauge",
        )
        self.in_flight = self._counter(
            "inflight", "Requests that a slot is working on.", ("group", "revision", "slot"), "gauge"
        )
        self.slot_sessions = self._counter(
            "slot_sessions",
            "Sessions of any revision that have come back, and that the slot served last and not long ago.",
            ("group", "revision", "slot"),
            "gauge",
        )
        self.slot_session_tokens = self._counter(
            "slot_session_tokens",
            "Their tokens beyond the declared prompt: what engines compute again if the slot leaves.",
            ("group", "revision", "slot"),
            "gauge",
        )
        self.held = self._counter("held_total", "Requests that waited in the router for room on a replica.", ("group",))
        self.waiting = self._counter("waiting", "Requests that wait in the router for room now.", kind="gauge")
        self.retries = self._counter("retries_total", "Requests sent again, by what failed.", ("reason",))
        self.retries_held = self._counter(
            "retries_held_total", "Times that a request was not sent again at once, because too many others were."
        )
        self.ejections = self._counter("ejections_total", "Slots left alone for a while after a failure.")
        self.unmatched = self._counter("unmatched_requests_total", "Requests that match no group.", ("model",))
        self.sessions_moved = self._counter(
            "sessions_moved_total", "Requests of a session that another slot served than the last one.", ("group",)
        )
        self.keys_moved = self._counter(
            "keys_moved_ratio", "Share of sessions that the last change of the table moved.", ("group",), "gauge"
        )
        self.conflicts = self._counter(
            "conflicts", "Declared prefixes that an older group has already.", ("group",), "gauge"
        )
        self.table_errors = self._counter(
            "table_errors_total", "Tables or routes that could not be read; the last good one serves.", ("source",)
        )
        self.table_info = self._counter("table_info", "The routing table in use.", ("version", "source"), "gauge")
        self.table_age = self._counter("table_age_seconds", "Since the source last confirmed the table.", (), "gauge")
        self.workers = self._counter("workers", "Processes that serve on the port for requests.", (), "gauge")
        self.workers.add()
        self.worker_ends = self._counter("worker_ends_total", "Worker processes that ended unasked and were replaced.")
        self.connections = self._counter("connections", "Client connections.", (), "gauge")
        self.peers = self._counter(
            "peers", "Other routers that were heard from within the last 5 seconds.", (), "gauge"
        )
        self.peer_key = self._counter(
            "peer_key", "Whether there is a key to talk to other routers; without it nothing is exchanged.", (), "gauge"
        )
        self.peer_datagrams = self._counter("peer_datagrams_total", "Datagrams between routers.", ("direction",))
        self.peer_bytes = self._counter("peer_bytes_total", "Bytes of datagrams between routers.", ("direction",))
        self.peer_notes = self._counter(
            "peer_notes_total", "Placements of sessions told to other routers, and by them.", ("direction",)
        )
        self.peer_dropped = self._counter(
            "peer_datagrams_dropped_total", "Datagrams from or to other routers that were dropped.", ("reason",)
        )
        self.peer_notes_dropped = self._counter(
            "peer_notes_dropped_total", "Placements that other routers were not told, for there were too many."
        )
        self.peer_lookup_failures = self._counter(
            "peer_lookup_failures_total", "Lookups of other routers' addresses that failed; the last ones serve."
        )
        self.build_info = self._counter(
            "build_info",
            "The Python that runs this router, and whether its data path is compiled.",
            ("python", "compiled"),
            "gauge",
        )

    def keep(self, labels: tuple[str, ...], wanted: Collection[tuple[str, ...]]) -> None:
        """Drop the series that begin with these labels, and whose values of them are not wanted."""
        for metric in self.all:
            metric.keep(labels, wanted)

    def text(self) -> str:
        """Return the exposition."""
        return "".join(f"{line}\n" for metric in self.all for line in metric.lines())

    def _counter(self, name: str, help_text: str, labels: tuple[str, ...] = (), kind: str = "counter") -> Counter:
        counter = Counter(name, help_text, labels, kind)
        self.all.append(counter)
        return counter

    def _histogram(
        self, name: str, help_text: str, labels: tuple[str, ...], buckets: tuple[float, ...] = LATENCY_BUCKETS
    ) -> LatencyHistogram:
        histogram = LatencyHistogram(name, help_text, labels, buckets)
        self.all.append(histogram)
        return histogram


def _braces(names: tuple[str, ...], values: tuple[str, ...]) -> str:
    if not names:
        return ""
    return "{" + ",".join(f'{name}="{_escape(value)}"' for name, value in zip(names, values, strict=True)) + "}"


def _escape(value: str) -> str:
    return value.replace("\\", r"\\").replace('"', r"\"").replace("\n", r"\n")


def number(value: float) -> str:
    """Return a value as the exposition writes it."""
    return str(int(value)) if value == int(value) else repr(value)
