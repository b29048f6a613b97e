"""Finds the answer to a similar question, within the time that a request may wait for it."""

import asyncio
from array import array
from collections import deque
from collections.abc import Callable, Mapping

import orjson

from promptgroup_router.base.metrics import Metrics
from promptgroup_router.contract.semantic import SemanticCaching, SemanticMode
from promptgroup_router.response_cache.answer import KeptAnswer
from promptgroup_router.response_cache.canonical import CacheKey
from promptgroup_router.response_cache.purge import Purge
from promptgroup_router.semantic.differences import difference
from promptgroup_router.semantic.embedder import Embedder, EmbeddingSource, NoEmbedding
from promptgroup_router.semantic.neighbours import QuestionIndex
from promptgroup_router.semantic.question import Question

HIT, WOULD_HIT, MISS, LATE = "hit", "would_hit", "miss", "late"
"""Fates of a question, for metrics; beside them the reasons of `NoEmbedding`, and `refused_` with a
`Difference`."""
NO_QUESTION = "no_question"

SAMPLES = 500
"""Pairs of questions that are kept for people to judge: the last ones."""

Lookup = Callable[[CacheKey], KeptAnswer | None]


class SimilarAnswers:
    """The questions that a router process remembers, by group."""

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
            embedder: asks endpoints.
            metrics: of the router.
            credential: namespace and `name/key` → the credential that is there; empty while it is not known.
            clock: monotonic seconds.
            sample_bytes: most bytes of a question that is kept for people to judge; 0 to keep none.
        """
        self._sample_bytes = sample_bytes
        self._samples: deque[tuple[str, str, str, float]] = deque(maxlen=SAMPLES)
        """Group, question, similar question and similarity."""
        self.embedder = embedder
        self.metrics = metrics
        self.clock = clock
        self._credential = credential
        self._groups: dict[str, QuestionIndex] = {}

    def search(
        self,
        group: str,
        question: Question,
        rules: SemanticCaching,
        lookup: Lookup,
        found: Callable[[KeptAnswer], None],
    ) -> "Search":
        """Begin to look for the answer to a similar question.

        Args:
            group: `namespace/group`.
            question: the question.
            rules: of the group.
            lookup: the key of an answer → the answer, if it may be given.
            found: called once at most, and not in shadow mode, with the answer.
        """
        credential = self._credential(group.partition("/")[0], rules.credential) if rules.credential else b""
        source, index = (rules.url, rules.model), self._groups.get(group)
        if index is None or index.source != source:
            index = self._groups[group] = QuestionIndex(source)
        search = Search(self, index=index, group=group, question=question, rules=rules, lookup=lookup, found=found)
        search.begin(EmbeddingSource(rules.url, rules.model, credential))
        return search

    def keep_groups(self, limits: Mapping[str, int]) -> None:
        """Forget the questions of groups that are not listed, and the oldest of the others beyond their limits."""
        for group in self._groups.keys() - limits.keys():
            del self._groups[group]
        self._drop_samples(limits.keys().__contains__)
        for group, index in self._groups.items():
            index.shrink(limits[group])

    def purge(self, purge: Purge) -> None:
        """Forget the questions whose answers are purged, and with those of a revision all of its group."""
        if purge.key is not None:
            for index in self._groups.values():
                index.remove(purge.key)
            return
        for group in [each for each in self._groups if purge.group in ("", each)]:
            self._groups[group].shrink(0)
        self._drop_samples(lambda group: purge.group not in ("", group))

    def _drop_samples(self, wanted: Callable[[str], bool]) -> None:
        kept = [sample for sample in self._samples if wanted(sample[0])]
        self._samples.clear()
        self._samples.extend(kept)

    def keep_sample(self, group: str, question: str, other: str, similarity: float) -> None:
        """Keep a pair of questions that shadow mode would have given one answer, where samples are allowed."""
        if max(len(question.encode()), len(other.encode())) <= self._sample_bytes:
            self._samples.append((group, question, other, similarity))

    def samples(self) -> bytes:
        """Return the pairs as JSON Lines, in which somebody fills in `same` for `promptgroup responses calibrate`."""
        return b"".join(
            orjson.dumps({"a": question, "b": other, "same": None, "similarity": round(similarity, 4), "group": group})
            + b"\n"
            for group, question, other, similarity in self._samples
        )

    def tell(self) -> None:
        """Write the gauge."""
        self.metrics.semantic_questions.replace({(group,): len(index) for group, index in self._groups.items()})


class Search:
    """The way from a question to a similar one's answer, and into memory with its own."""

    def __init__(
        self,
        similar: SimilarAnswers,
        *,
        index: QuestionIndex,
        group: str,
        question: Question,
        rules: SemanticCaching,
        lookup: Lookup,
        found: Callable[[KeptAnswer], None],
    ) -> None:
        self._similar = similar
        self._index = index
        self._group = group
        self._question = question
        self._rules = rules
        self._lookup = lookup
        self._found = found
        self._began = similar.clock()
        self._vector: array[float] | None = None
        self._own: CacheKey | None = None
        """The answer to the question itself, once it is kept."""
        self._counted = False
        self._drop: Callable[[], None] | None = None
        self._go_on: Callable[[], None] | None = None
        self._timer: asyncio.TimerHandle | None = None

    def begin(self, endpoint: EmbeddingSource) -> None:
        """Ask for the embedding."""
        self._drop = self._similar.embedder.ask(endpoint, self._question.text, self._embedded)

    def wait(self, go_on: Callable[[], None]) -> bool:
        """Return True if the request is to wait.

        Args:
            go_on: called once, within the group's budget, if there is no answer; unless `call_off` is called before.
        """
        if self._rules.mode is not SemanticMode.ANSWER or self._counted:
            return False
        self._go_on = go_on
        self._timer = asyncio.get_running_loop().call_later(self._rules.budget / 1000, self._late)
        return True

    def call_off(self) -> None:
        """Stop: nobody waits for the answer."""
        self._stop_waiting()
        self._counted = True
        if self._drop is not None:
            self._drop()

    def landed(self, key: CacheKey | None) -> None:
        """Take the key of the question's own answer, which is kept now; None if it is not."""
        if key is None:
            self.call_off()
            return
        self._own = key
        self._learn()

    def _embedded(self, vector: "array[float] | NoEmbedding") -> None:
        self._drop = None
        self._similar.metrics.semantic_seconds.observe(self._group, value=self._similar.clock() - self._began)
        if isinstance(vector, NoEmbedding):
            self._end(vector.value)
            return
        self._vector = vector
        if not self._counted:
            self._look(vector)
        self._learn()

    def _look(self, vector: "array[float]") -> None:
        result = MISS
        for neighbour in self._index.nearest(self._question, vector, self._rules.threshold):
            if neighbour.key == self._own:
                continue
            kept = self._lookup(neighbour.key)
            if kept is None:
                self._index.remove(neighbour.key)
                continue
            apart = difference(self._question.text, neighbour.text)
            if apart is not None:
                result = f"refused_{apart.value}" if result == MISS else result
                continue
            if self._rules.mode is SemanticMode.SHADOW:
                self._similar.keep_sample(self._group, self._question.text, neighbour.text, neighbour.similarity)
                self._end(WOULD_HIT)
                return
            self._stop_waiting()
            self._count(HIT)
            self._found(kept)
            return
        self._end(result)

    def _late(self) -> None:
        self._timer = None
        self._end(LATE)

    def _end(self, result: str) -> None:
        """Count what became of the question, and let its request go on if it waits."""
        self._count(result)
        go_on = self._stop_waiting()
        if go_on is not None:
            go_on()

    def _count(self, result: str) -> None:
        if not self._counted:
            self._counted = True
            self._similar.metrics.semantic.add(self._group, result)

    def _stop_waiting(self) -> Callable[[], None] | None:
        if self._timer is not None:
            self._timer.cancel()
            self._timer = None
        go_on, self._go_on = self._go_on, None
        return go_on

    def _learn(self) -> None:
        if self._own is not None and self._vector is not None:
            self._index.add(self._question, self._vector, self._own, self._rules.max_entries)
