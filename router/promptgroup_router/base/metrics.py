"""The router's metrics, and their text. Does no I/O and reads no clock.

Label values come from the routing table and from fixed lists, never from clients: the table bounds their number.
"""

from collections.abc import Container, Generator, Iterable, Mapping
from itertools import accumulate
from typing import TypeVar

from promptgroup_contract.names import TURN_OTHER
from promptgroup_router.base.caller_metrics import CallerMetrics
from promptgroup_router.base.exposition import PROMETHEUS, Exemplar, TextFormat, number
from promptgroup_router.base.request_series import RequestSeries
from promptgroup_router.base.series import Observations, Series
from promptgroup_router.base.steps import at_once, filtered_steps, sorted_steps

LATENCY_BUCKETS = (0.005, 0.01, 0.025, 0.05, 0.1, 0.25, 0.5, 1.0, 2.5, 5.0, 10.0, 30.0, 60.0, 120.0, 300.0, 600.0)
"""Seconds: from a cached first token on a small model to a long reasoning answer."""

FIRST_TOKEN_BUCKETS = tuple(round(0.005 * 2 ** (step / 2), 6) for step in range(34))
"""Seconds, 5 ms to 460 s in half octaves: a release is judged by quantiles, which are no finer than the buckets."""
OUTPUT_TOKEN_BUCKETS = tuple(round(0.001 * 2 ** (step / 2), 6) for step in range(22))
"""Seconds, 1 ms to 1.4 s in half octaves."""
CACHED_BUCKETS = tuple(tenth / 10 for tenth in range(11))
"""Shares of a prompt; the first bucket counts prompts of which nothing was cached."""

_Series = TypeVar("_Series", Series, Observations)

PREFIX = "promptgroup_router_"
PAGE_LINES = 2000
"""Lines of the exposition that are joined in one step."""


class Page:
    """A page of the exposition, whose lines are joined in blocks as they are added."""

    def __init__(self) -> None:
        self._blocks: list[str] = []
        self._lines: list[str] = []

    def add(self, lines: Iterable[str]) -> None:
        """Add lines."""
        self._lines += lines
        if len(self._lines) >= PAGE_LINES:
            self._blocks.append("\n".join((*self._lines, "")))
            self._lines = []

    def text(self, form: TextFormat) -> str:
        """Return the whole page."""
        return "".join((*self._blocks, *(f"{line}\n" for line in self._lines), form.end))


class Counter:
    """A counter, or a gauge, by labels."""

    def __init__(self, name: str, help_text: str, labels: tuple[str, ...] = (), kind: str = "counter") -> None:
        self.name = PREFIX + name
        self._help = help_text
        self._labels = labels
        self._kind = kind
        # a counter begins at 0; a gauge of 0 is a measurement, so it is exposed only after one
        exposed_from_the_start = kind == "counter" and not labels
        self._series: dict[tuple[str, ...], Series] = {(): Series(rank=1)} if exposed_from_the_start else {}

    @property
    def values(self) -> dict[tuple[str, ...], float]:
        """The values by labels, as of now."""
        return {labels: series.value for labels, series in at_once(_exposed(self._series))}

    def series(self, labels: tuple[str, ...]) -> Series:
        """Return the series of these labels."""
        result = self._series.get(labels)
        if result is None:
            result = self._series[labels] = Series()
        return result

    def add(self, *labels: str, amount: float = 1) -> None:
        """Add to the value of these labels."""
        self.series(labels).add(amount)

    def keep_steps(self, labels: tuple[str, ...], desired: Container[tuple[str, ...]]) -> Generator[None, None, None]:
        """Drop the series that have these as their first labels with values that are not desired."""
        if self._labels[: len(labels)] == labels:
            for result in list(self._series):
                if result[: len(labels)] not in desired:
                    self._series.pop(result, None)
                yield

    def replace(self, values: Mapping[tuple[str, ...], float]) -> None:
        """Replace all values of a gauge."""
        self.put(at_once(self.series_steps(values)))

    @staticmethod
    def series_steps(values: Mapping[tuple[str, ...], float]) -> Generator[None, None, dict[tuple[str, ...], Series]]:
        """Return the series of a gauge that has these values, made in steps."""
        made: dict[tuple[str, ...], Series] = {}
        for labels, value in values.items():
            made[labels] = Series(value, rank=1)
            yield
        return made

    def put(self, series: dict[tuple[str, ...], Series]) -> dict[tuple[str, ...], Series]:
        """Replace all series of a gauge. Return those that it had."""
        before, self._series = self._series, series
        return before

    def line_steps(self, form: TextFormat, page: Page) -> Generator[None, None, None]:
        """Append the lines of the exposition, in steps of a line."""
        page.add(form.heading(self.name, self._help, self._kind))
        result = yield from _exposed(self._series)
        result.reverse()
        while result:  # series are freed one by one: freeing all together takes some milliseconds
            labels, series = result.pop()
            page.add((f"{self.name}{_braces(self._labels, labels)} {number(series.value)}",))
            yield


_NO_EXEMPLARS: dict[int, Exemplar] = {}


class LatencyHistogram:
    """A histogram by labels."""

    def __init__(
        self, name: str, help_text: str, labels: tuple[str, ...], buckets: tuple[float, ...] = LATENCY_BUCKETS
    ) -> None:
        self.name = PREFIX + name
        self._help = help_text
        self._labels = labels
        self._buckets = buckets
        self._series: dict[tuple[str, ...], Observations] = {}

    @property
    def values(self) -> dict[tuple[str, ...], Observations]:
        """The observations by labels."""
        return dict(at_once(_exposed(self._series)))

    def series(self, labels: tuple[str, ...]) -> Observations:
        """Return the series of these labels."""
        observations = self._series.get(labels)
        if observations is None:
            observations = self._series[labels] = Observations(self._buckets)
        return observations

    def observe(self, *labels: str, value: float) -> None:
        """Add an observation."""
        self.series(labels).record(value)

    def keep_steps(self, labels: tuple[str, ...], desired: Container[tuple[str, ...]]) -> Generator[None, None, None]:
        """Drop the series that have these as their first labels with values that are not desired."""
        if self._labels[: len(labels)] == labels:
            for result in list(self._series):
                if result[: len(labels)] not in desired:
                    self._series.pop(result, None)
                yield

    def line_steps(self, form: TextFormat, page: Page) -> Generator[None, None, None]:
        """Append the lines of the exposition, in steps of a series."""
        page.add(form.heading(self.name, self._help, "histogram"))
        bounds = [*(repr(float(bound)) for bound in self._buckets), "+Inf"]  # as OpenMetrics wants them
        result = yield from _exposed(self._series)
        result.reverse()
        while result:
            labels, histogram = result.pop()
            lines: list[str] = []
            exemplars = histogram.exemplars if form.openmetrics else _NO_EXEMPLARS
            for at, (bound, total) in enumerate(zip(bounds, accumulate(histogram.counts), strict=True)):
                exemplar = exemplars.get(at)
                example = exemplar.text() if exemplar is not None else ""
                lines.append(f"{self.name}_bucket{_braces((*self._labels, 'le'), (*labels, bound))} {total}{example}")
            lines.append(f"{self.name}_sum{_braces(self._labels, labels)} {number(histogram.sum)}")
            lines.append(f"{self.name}_count{_braces(self._labels, labels)} {sum(histogram.counts)}")
            page.add(lines)
            yield


class Metrics:
    """All metrics of the router."""

    def __init__(self) -> None:
        self.all: list[Counter | LatencyHistogram] = []
        """All of them, in the order of the exposition."""
        self.epoch = 0.0
        """Seconds since 1970 at which the monotonic clock was 0."""
        self._of_requests: dict[tuple[str, str, str, str, bool], RequestSeries] = {}
        self._add_sleep()  # first: a page that is too long is not read to its end
        self.requests = self._counter("requests_total", "Completed requests, by status code.", ("group", "code"))
        self.callers = CallerMetrics(self._counter)
        self.access_refused = self._counter(
            "access_refused_total", "Requests refused because of their sender, by the error's code.", ("code",)
        )
        self.cut = self._counter(
            "answers_cut_total", "Answers that ended early, by the side that ended them.", ("group", "by")
        )
        self.resumed = self._counter(
            "answers_resumed_total",
            "Streamed answers that continued on another replica, by the reason (lost or leaving).",
            ("group", "reason"),
        )
        self.prompt_tokens = self._counter("prompt_tokens_total", "Prompt tokens that engines reported.", ("group",))
        self.cached_tokens = self._counter(
            "cached_tokens_total", "Prompt tokens that engines found in their prefix cache.", ("group",)
        )
        self.first_byte = self._histogram(
            "time_to_first_byte_seconds",
            "From the whole request to the first byte of an answer that is no error, streamed or whole.",
            ("group",),
        )
        self.duration = self._histogram(
            "request_duration_seconds", "From the whole request to the end of an answer that is no error.", ("group",)
        )
        self._add_release()
        self.revision_prompt_tokens = self._counter(
            "revision_prompt_tokens_total", "Prompt tokens that engines reported, by revision.", ("group", "revision")
        )
        self._add_caches()
        self.revision_sessions = self._counter(
            "revision_sessions",
            "Active sessions with at least two requests, by the revision that served them last.",
            ("group", "revision"),
            "gauge",
        )
        self.revision_session_tokens = self._counter(
            "revision_session_tokens",
            "Tokens of active sessions beyond the declared prompt, by revision.",
            ("group", "revision"),
            "gauge",
        )
        self.revision_waiting = self._counter(
            "revision_waiting",
            "Requests that wait in the router for a replica with room, by revision.",
            ("group", "revision"),
            "gauge",
        )
        self.near_miss = self._counter(
            "near_miss_requests_total", "Requests that match no group but nearly match this group's prompt.", ("group",)
        )
        self.near_miss_offset = self._counter(
            "near_miss_offset_bytes",
            "Median position at which recent near misses differ from the declared prompt, in bytes from its beginning.",
            ("group",),
            "gauge",
        )
        self.in_flight = self._counter(
            "inflight", "Requests in flight, by slot.", ("group", "revision", "slot"), "gauge"
        )
        self.slot_sessions = self._counter(
            "slot_sessions",
            "Active sessions with at least two requests, of any revision, by the slot that served them last.",
            ("group", "revision", "slot"),
            "gauge",
        )
        self.slot_session_tokens = self._counter(
            "slot_session_tokens",
            "Tokens of active sessions beyond the declared prompt, by slot: computed again if the slot leaves.",
            ("group", "revision", "slot"),
            "gauge",
        )
        self.held = self._counter(
            "queued_total", "Requests that waited in the router for room on a replica.", ("group",)
        )
        self.queued_seconds = self._histogram(
            "queued_seconds",
            "Time that requests waited in the router for room, until a replica had it or they were refused.",
            ("group",),
        )
        self.waiting = self._counter(
            "waiting", "Requests that wait in the router for a replica with room.", kind="gauge"
        )
        self.retries = self._counter("retries_total", "Requests retried, by the failure.", ("reason",))
        self.retries_held = self._counter(
            "retries_queued_total", "Retries that were delayed because the retry budget was spent."
        )
        self.ejections = self._counter("ejections_total", "Ejections of a slot after a failure.")
        self.unmatched = self._counter("unmatched_requests_total", "Requests that match no group.", ("model",))
        self.sessions_moved = self._counter(
            "sessions_moved_total",
            "Requests that another slot served than the previous request of their session.",
            ("group",),
        )
        self.keys_moved = self._counter(
            "keys_moved_ratio", "Share of sessions that the last change of the table moved.", ("group",), "gauge"
        )
        self.conflicts = self._counter(
            "conflicts", "Declared prompts that an older group has declared already.", ("group",), "gauge"
        )
        self.alias_conflicts = self._counter(
            "alias_conflicts",
            "Aliases of the group's model that are already the name of something else.",
            ("group",),
            "gauge",
        )
        self.name_conflicts = self._counter(
            "name_conflicts", "Names of the group and its model that another namespace had first.", ("group",), "gauge"
        )
        self._add_responses()
        self.table_errors = self._counter(
            "table_errors_total",
            "Routing tables or routes that could not be read; the last good one stays in use.",
            ("source",),
        )
        self.key_errors = self._counter(
            "key_errors_total",
            "Failed or unusable reads of callers' keys; the last good keys stay in use.",
            ("source",),
        )
        self.table_info = self._counter("table_info", "The routing table in use.", ("version", "source"), "gauge")
        self.table_age = self._counter(
            "table_age_seconds", "Seconds since the source last confirmed the routing table.", (), "gauge"
        )
        self.connections = self._counter("connections", "Open client connections.", (), "gauge")
        self.connections_given_up = self._counter(
            "connections_given_up_total",
            "Client connections that were closed for new ones at --max-connections, by what they had brought: nothing "
            "(silent), part of a head (begun), whole requests (kept), or part of a body (uploading).",
            ("use",),
        )
        self.handshakes_refused = self._counter(
            "handshakes_refused_total",
            "TLS connections reset because their address had a quarter of all connections in handshakes.",
        )
        self._add_peers()
        self.build_info = self._counter(
            "build_info",
            "The Python that runs this router, and whether its data path is compiled.",
            ("python", "compiled"),
            "gauge",
        )

    def _add_sleep(self) -> None:
        """Add the series of groups that have no replica on purpose."""
        self.wake_requests = self._counter(
            "wake_requests_total",
            "Requests for a group that has no replica because it sleeps or is scaled to zero.",
            ("group",),
        )
        self.wake_at = self._counter(
            "wake_last_request_timestamp_seconds",
            "Time of the latest request for a group that has no replica because it sleeps or is scaled to "
            "zero, in seconds since 1970.",
            ("group",),
            "gauge",
        )
        self.wake_waiting = self._counter(
            "wake_waiting", "Requests that are held until the group has a warm replica.", ("group",), "gauge"
        )

    def _add_release(self) -> None:
        """Add the series by which the revisions of a release are compared."""
        self.revision_requests = self._counter(
            "revision_requests_total",
            "Completed requests whose client was still connected, by match type and outcome.",
            ("group", "revision", "turn", "how", "streamed", "outcome"),
        )
        self.revision_first_token = self._histogram(
            "revision_first_token_seconds",
            "From the whole request to the first token of a streamed answer, by revision.",
            ("group", "revision", "turn", "how", "streamed"),
            FIRST_TOKEN_BUCKETS,
        )
        self.revision_cached = self._histogram(
            "revision_cached_ratio",
            "Share of the repeated prompt tokens (declared prompt and session history) that was found in cache.",
            ("group", "revision", "turn", "how", "streamed"),
            CACHED_BUCKETS,
        )
        self.revision_own_tokens = self._counter(
            "revision_own_tokens_total",
            "Prompt tokens that no earlier request had, of streamed requests whose first token was timed.",
            ("group", "revision", "turn", "how", "streamed"),
        )
        self.revision_shared_tokens = self._counter(
            "revision_shared_tokens_total",
            "Prompt tokens outside the declared prompt that other sessions had brought to the replica, of "
            "streamed requests whose first token was timed.",
            ("group", "revision", "turn", "how", "streamed"),
        )

    def _add_caches(self) -> None:
        """Add the series of what caches find and miss, and of how long answers take with it."""
        self.ttft = self._histogram(
            "time_to_first_token_seconds",
            "From the whole request to the first token of a streamed answer that came whole, by the percent of its "
            "prompt that was found in cache.",
            ("group", "revision", "cached"),
            FIRST_TOKEN_BUCKETS,
        )
        self.tpot = self._histogram(
            "time_per_output_token_seconds",
            "Mean time between the tokens of a whole streamed answer, after the first, by the percent of its "
            "prompt that was found in cache.",
            ("group", "revision", "cached"),
            OUTPUT_TOKEN_BUCKETS,
        )
        self.revision_answer_tokens = self._counter(
            "revision_answer_tokens_total", "Tokens of answers that engines reported.", ("group", "revision")
        )
        self.missed_tokens = self._counter(
            "missed_tokens_total",
            "Repeated prompt tokens that were computed again, by cause.",
            ("group", "revision", "cause"),
        )
        self.cache_diagnoses = self._counter(
            "cache_diagnoses_total",
            "Answers to clients that asked for a cache diagnosis, by the expected and the reported result.",
            ("group", "expected", "observed"),
        )
        self.revision_evicted = self._counter(
            "revision_evicted_tokens_total",
            "Repeated prompt tokens that the replica had evicted, by the cache size (a multiple of today's) "
            "that would still hold them.",
            ("group", "revision", "within"),
        )
        self.missed_seconds = self._counter(
            "missed_seconds_total",
            "Seconds of prefill spent on repeated prompt tokens that were computed again, at the replica's "
            "measured rate, by cause.",
            ("group", "revision", "cause"),
        )
        self.saved_seconds = self._counter(
            "saved_seconds_total",
            "Seconds of prefill saved by tokens found in cache, at the replica's measured rate.",
            ("group", "revision"),
        )
        self.slot_prompt_tokens = self._counter(
            "slot_prompt_tokens_total",
            "Prompt tokens that engines reported, by slot and data-parallel rank.",
            ("group", "revision", "slot", "engine"),
        )
        self.slot_cached_tokens = self._counter(
            "slot_cached_tokens_total",
            "Prompt tokens found in the prefix cache, by slot and data-parallel rank.",
            ("group", "revision", "slot", "engine"),
        )

    def _add_peers(self) -> None:
        self.peers = self._counter("peers", "Peer routers heard from within the last 5 seconds.", (), "gauge")
        self.peer_key = self._counter(
            "peer_key", "1 if there is a key for peer routers; without one nothing is exchanged.", (), "gauge"
        )
        self.peer_datagrams = self._counter("peer_datagrams_total", "Datagrams between routers.", ("direction",))
        self.peer_bytes = self._counter("peer_bytes_total", "Bytes of datagrams between routers.", ("direction",))
        self.peer_notes = self._counter(
            "peer_notes_total", "Session placements sent to and received from peer routers.", ("direction",)
        )
        self.peer_dropped = self._counter(
            "peer_datagrams_dropped_total", "Dropped datagrams between routers.", ("reason",)
        )
        self.peer_notes_dropped = self._counter(
            "peer_notes_dropped_total", "Session placements not sent to peer routers because there were too many."
        )
        self.peer_lookup_failures = self._counter(
            "peer_lookup_failures_total",
            "Failed lookups of peer routers' addresses; the last known addresses stay in use.",
        )

    def _add_responses(self) -> None:
        self.responses = self._counter(
            "responses_total",
            "Requests of groups with a response cache, by result.",
            ("group", "result"),
        )
        self.responses_bytes = self._counter(
            "responses_bytes", "Bytes of cached answers in memory.", ("group",), "gauge"
        )
        self.responses_kept = self._counter("responses_kept", "Cached answers in memory.", ("group",), "gauge")
        self.responses_evicted = self._counter("responses_evicted_total", "Cached answers evicted from memory.")
        self.responses_store = self._counter(
            "responses_store_total",
            "Commands to the shared store of answers, by result; skipped commands were not sent.",
            ("operation", "result"),
        )
        self.responses_store_up = self._counter(
            "responses_store_up",
            "1 if the shared store of answers is in use, 0 while it fails.",
            (),
            "gauge",
        )

    def of_requests(self, group: str, revision: str, *, turn: str, how: str, streamed: bool) -> RequestSeries:
        """Return the series of the requests of a revision by clients who ask alike; `turn` is a label's value."""
        key = group, revision, turn, how, streamed
        of_request = self._of_requests.get(key)
        if of_request is None:
            other = None
            if turn != TURN_OTHER:
                other = self.of_requests(group, revision, turn=TURN_OTHER, how=how, streamed=streamed)
            of_request = RequestSeries(self, group, revision, turn=turn, how=how, streamed=streamed, other=other)
            self._of_requests[key] = of_request
        return of_request

    def keep(self, labels: tuple[str, ...], desired: Container[tuple[str, ...]]) -> None:
        """Drop series at once: see `keep_steps`."""
        at_once(self.keep_steps(labels, desired))

    def keep_steps(self, labels: tuple[str, ...], desired: Container[tuple[str, ...]]) -> Generator[None, None, None]:
        """Drop the series that begin with these labels, and whose values of them are not wanted, in steps of one."""
        if labels == ("group",):
            self.callers.keep(desired)
        for metric in self.all:
            yield from metric.keep_steps(labels, desired)
        self._of_requests.clear()  # some of them are of what is dropped

    def text(self, form: TextFormat = PROMETHEUS) -> str:
        """Return the exposition at once."""
        return at_once(self.text_steps(form))

    def text_steps(self, form: TextFormat = PROMETHEUS) -> Generator[None, None, str]:
        """Return the exposition, written in steps of a line: thousands of replicas have several each."""
        yield from self.callers.tell_steps()
        page = Page()
        for metric in self.all:
            yield from metric.line_steps(form, page)
        return page.text(form)

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


def _exposed(series: Mapping[tuple[str, ...], _Series]) -> Generator[None, None, list[tuple[tuple[str, ...], _Series]]]:
    """Return the exposed series by labels, in the order in which they were first used."""
    result = yield from filtered_steps(list(series.items()), lambda item: item[1].rank > 0)
    return (yield from sorted_steps(result, lambda item: item[1].rank))


def _braces(names: tuple[str, ...], values: tuple[str, ...]) -> str:
    if not names:
        return ""
    return "{" + ",".join(f'{name}="{_escape(value)}"' for name, value in zip(names, values, strict=True)) + "}"


def _escape(value: str) -> str:
    return value.replace("\\", r"\\").replace('"', r"\"").replace("\n", r"\n")
