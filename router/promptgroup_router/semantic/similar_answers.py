"""Counts the questions that are similar to an earlier one, without delaying the requests that contain them.

This is the feature's part in a process: `semantic_cache` makes it from the settings.
"""

import ssl
from array import array
from collections import deque
from collections.abc import Callable, Iterator, Mapping

import orjson

from promptgroup_contract.semantic import SemanticCaching
from promptgroup_contract.table import ResponseCaching, RoutingTable
from promptgroup_router.apis.request import ParsedRequest
from promptgroup_router.base.core_settings import ApiServerAddress, CoreSettings
from promptgroup_router.base.metrics import Counter, LatencyHistogram, Metrics
from promptgroup_router.response_cache.canonical import CacheKey
from promptgroup_router.response_cache.points import AnswerObserver, Lookup, ObservedRequest
from promptgroup_router.response_cache.purge import Purge
from promptgroup_router.routing.route import Route
from promptgroup_router.semantic.embedder import Embedder, EmbeddingSource, NoEmbedding
from promptgroup_router.semantic.neighbours import QuestionIndex
from promptgroup_router.semantic.question import Circumstances, Question, read_question

WOULD_HIT, MISS = "would_hit", "miss"
"""Results of a search, for metrics; further ones are the reasons of `NoEmbedding`."""
NO_QUESTION = "no_question"

SAMPLES = 500
"""Most pairs of questions that are stored for review by people; older pairs are dropped."""


class SemanticSeries:
    """The metrics."""

    def __init__(self, metrics: Metrics) -> None:
        """Add the series to those of a process."""
        self.results = Counter(
            "semantic_total",
            "Questions without an exact cached answer, by whether a similar question has one.",
            ("group", "result"),
        )
        self.questions = Counter(
            "semantic_questions", "Questions that the semantic cache remembers.", ("group",), "gauge"
        )
        self.seconds = LatencyHistogram(
            "semantic_embedding_seconds", "Time until an endpoint gave the embedding of a question.", ("group",)
        )
        metrics.all += (self.results, self.questions, self.seconds)


class SimilarAnswers(AnswerObserver):
    """The questions that a router process has indexed, by group."""

    def __init__(
        self,
        embedder: Embedder,
        metrics: Metrics,
        credential: Callable[[str, str], bytes],
        clock: Callable[[], float],
        *,
        sample_bytes: int = 0,
    ) -> None:
        """Begin with no question.

        Args:
            embedder: requests embeddings from endpoints.
            metrics: of the router, which get the feature's series.
            credential: namespace and `name/key` → the credential; empty while it has not been read.
            clock: monotonic seconds.
            sample_bytes: most bytes of a question that is stored for review by people; 0 to store none.
        """
        self._sample_bytes = sample_bytes
        self._samples: deque[tuple[str, str, str, float]] = deque(maxlen=SAMPLES)
        """Group, question, similar question and similarity."""
        self.embedder = embedder
        self.series = SemanticSeries(metrics)
        self.clock = clock
        self._credential = credential
        self._groups: dict[str, QuestionIndex] = {}

    def observe(
        self,
        route: Route,
        caching: ResponseCaching,
        request: ParsedRequest,
        key_of: Callable[[ParsedRequest], CacheKey],
    ) -> ObservedRequest | None:
        """Return the question of a request, if questions of its group are counted."""
        if caching.semantic is None:
            return None
        preamble = route.rewrite.preamble
        parts = read_question(request) if preamble is None or preamble.tools is None else None
        question = Question(parts[0], Circumstances(key_of(parts[1]))) if parts is not None else None
        return ObservedQuestion(self, route.group, question, caching.semantic)

    def search(self, group: str, question: Question, rules: SemanticCaching, lookup: Lookup) -> "Search":
        """Begin the search for a similar question.

        Args:
            group: `namespace/group`.
            question: the question.
            rules: of the group.
            lookup: key of an answer → the answer, if it may be served.
        """
        credential = self._credential(group.partition("/")[0], rules.credential) if rules.credential else b""
        source, index = (rules.url, rules.model), self._groups.get(group)
        if index is None or index.source != source:
            index = self._groups[group] = QuestionIndex(source)
        search = Search(self, index=index, group=group, question=question, rules=rules, lookup=lookup)
        search.begin(EmbeddingSource(rules.url, rules.model, credential))
        return search

    def keep_groups(self, caching: Mapping[str, ResponseCaching]) -> None:
        """Remove the questions of groups that count none, and the oldest of the others beyond their limits."""
        limits = {group: rules.semantic.max_entries for group, rules in caching.items() if rules.semantic is not None}
        for group in self._groups.keys() - limits.keys():
            del self._groups[group]
        self._drop_samples(limits.keys().__contains__)
        for group, index in self._groups.items():
            index.shrink(limits[group])

    def purge(self, purge: Purge) -> None:
        """Remove the questions whose answers are purged; a purge of a revision removes all questions of its group."""
        if purge.key is not None:
            for index in self._groups.values():
                index.remove(purge.key)
            return
        for group in [item for item in self._groups if purge.group in ("", item)]:
            self._groups[group].shrink(0)
        self._drop_samples(lambda group: purge.group not in ("", group))

    def _drop_samples(self, desired: Callable[[str], bool]) -> None:
        samples = [sample for sample in self._samples if desired(sample[0])]
        self._samples.clear()
        self._samples.extend(samples)

    def keep_sample(self, group: str, question: str, other: str, similarity: float) -> None:
        """Store a pair of similar questions, where samples are allowed."""
        if max(len(question.encode()), len(other.encode())) <= self._sample_bytes:
            self._samples.append((group, question, other, similarity))

    def samples(self) -> bytes:
        """Return the pairs as JSON Lines; people fill in `same` for `promptgroup responses calibrate`."""
        return b"".join(
            orjson.dumps({"a": question, "b": other, "same": None, "similarity": round(similarity, 4), "group": group})
            + b"\n"
            for group, question, other, similarity in self._samples
        )

    def secrets(self, table: RoutingTable) -> Iterator[tuple[str, str]]:
        """Yield the Secrets with the credentials for the endpoints."""
        for group in table.groups:
            rules = group.responses.semantic if group.responses is not None else None
            if rules is not None and rules.credential:
                yield group.namespace, rules.credential.partition("/")[0]

    def tell(self) -> None:
        """Update the gauge."""
        self.series.questions.replace({(group,): len(index) for group, index in self._groups.items()})

    def tick(self, now: float) -> None:
        """Close connections that have been idle for too long."""
        self.embedder.tick(now)

    async def stop(self) -> None:
        """Cancel all requests to endpoints."""
        await self.embedder.stop()


class ObservedQuestion(ObservedRequest):
    """The question of a request."""

    def __init__(self, similar: SimilarAnswers, group: str, question: Question | None, rules: SemanticCaching) -> None:
        """Begin without a search.

        Args:
            similar: the questions of the process.
            group: `namespace/group`.
            question: None for a request without one.
            rules: of the group.
        """
        self._similar = similar
        self._group = group
        self._question = question
        self._rules = rules
        self._search: Search | None = None

    def missed(self, lookup: Lookup) -> None:
        """Search for a similar question, since the question itself has no cached answer."""
        if self._question is None:
            self._similar.series.results.add(self._group, NO_QUESTION)
            return
        self._search = self._similar.search(self._group, self._question, self._rules, lookup)

    def computed(self, key: CacheKey | None) -> None:
        """Index the question if its answer is cached."""
        if self._search is not None:
            self._search.computed(key)


class Search:
    """The search for a similar question; the question is indexed once its own answer is cached."""

    def __init__(
        self,
        similar: SimilarAnswers,
        *,
        index: QuestionIndex,
        group: str,
        question: Question,
        rules: SemanticCaching,
        lookup: Lookup,
    ) -> None:
        self._similar = similar
        self._index = index
        self._group = group
        self._question = question
        self._rules = rules
        self._lookup = lookup
        self._began = similar.clock()
        self._vector: array[float] | None = None
        self._answer: CacheKey | None = None
        """Key of the answer to the question itself, once it is cached."""
        self._drop: Callable[[], None] | None = None

    def begin(self, endpoint: EmbeddingSource) -> None:
        """Request the embedding."""
        self._drop = self._similar.embedder.ask(endpoint, self._question.text, self._embedded)

    def computed(self, key: CacheKey | None) -> None:
        """Store the key of the question's own answer, which is cached now; None if it is not cached."""
        if key is None:
            if self._drop is not None:
                self._drop()
            return
        self._answer = key
        self._learn()

    def _embedded(self, vector: "array[float] | NoEmbedding") -> None:
        self._drop = None
        self._similar.series.seconds.observe(self._group, value=self._similar.clock() - self._began)
        if isinstance(vector, NoEmbedding):
            self._similar.series.results.add(self._group, vector.value)
            return
        self._vector = vector
        self._similar.series.results.add(self._group, WOULD_HIT if self._has_neighbour(vector) else MISS)
        self._learn()

    def _has_neighbour(self, vector: "array[float]") -> bool:
        for neighbour in self._index.nearest(self._question, vector, self._rules.threshold):
            if neighbour.key == self._answer:
                continue
            if self._lookup(neighbour.key) is None:
                self._index.remove(neighbour.key)
                continue
            self._similar.keep_sample(self._group, self._question.text, neighbour.text, neighbour.similarity)
            return True
        return False

    def _learn(self) -> None:
        if self._answer is not None and self._vector is not None:
            self._index.add(self._question, self._vector, self._answer, self._rules.max_entries)


def semantic_cache(
    settings: CoreSettings,
    metrics: Metrics,
    credential: Callable[[str, str], bytes],
    clock: Callable[[], float],
) -> SimilarAnswers:
    """Return the feature of a process: see `SimilarAnswers`."""
    # the author of a table file may name any endpoint; authors of PromptRoutes must not make routers connect to their
    # own machine
    networks = settings.source.allowed_networks if isinstance(settings.source, ApiServerAddress) else None
    embedder = Embedder(clock, ssl.create_default_context, networks)
    return SimilarAnswers(embedder, metrics, credential, clock, sample_bytes=settings.keep_samples)
