"""The data-parallel ranks of one engine: which of them takes a request, and what the others do when one dies.

Follows vLLM 0.32 with `--data-parallel-size` (and, as far as its source says it, SGLang 0.5.23 with `--dp-size`):

- Each rank has a KV cache, a scheduler and metrics of its own. One page has them all, told apart by a label.
- The header field `x-data-parallel-rank` chooses one. vLLM ignores what is no integer, SGLang refuses it; a number that
  is out of range is refused by both. vLLM does not heed the field on `/v1/responses`.
- A request that names none goes where the fewest run, in turn where as many do. Nobody looks at prefixes.
- When a rank dies, the streams of the others end as if they were whole (`finish_reason: abort`, then `[DONE]`), its own
  hang. For some seconds `/health` answers 200 and each request 500; then the process ends.
"""

from collections.abc import Iterator

from prometheus_client import Metric
from prometheus_client.registry import Collector
from prometheus_client.samples import Sample

from promptgroup_local.engine.core import Engine
from promptgroup_local.engine.flags import Flags, Knobs, Speech
from promptgroup_local.engine.protocol import ApiError


class Ranks(Collector):
    """The engine cores of one server. It collects the metrics of all."""

    def __init__(self, flags: Flags, knobs: Knobs) -> None:
        self._speech = flags.speech
        self.all = [Engine(flags, knobs, rank) for rank in range(flags.ranks)]
        self.dead = False
        """True once a rank has died, and with it the engine."""
        self._turn = 0

    @property
    def load(self) -> int:
        """Requests that run or wait on any rank."""
        return sum(item.load for item in self.all)

    def reset_prefix_cache(self) -> bool:
        """Forget the prefixes of all ranks; False while a request runs on one."""
        done = [item.reset_prefix_cache() for item in self.all]
        return all(done)

    def abort(self) -> None:
        """End every request with what it has so far."""
        for item in self.all:
            item.abort()

    def chosen(self, named: str | None) -> Engine:
        """Return the rank that takes a request.

        Args:
            named: the value of the header field; None where it is missing, or not heeded.

        Raises:
            ApiError: the rank does not exist, or the engine is dead.
        """
        if self.dead:
            raise ApiError(500, "EngineCore encountered an issue. See stack trace (above) for the root cause.")
        if named is not None and len(self.all) > 1 and (rank := self._number(named)) is not None:
            if not 0 <= rank < len(self.all):
                word = "routed_dp_rank=" if self._speech is Speech.SGLANG else "data_parallel_rank "
                verb = "" if self._speech is Speech.SGLANG else "is "
                raise ApiError(400, f"{word}{rank} {verb}out of range [0, {len(self.all)}).")
            return self.all[rank]
        order = [self.all[(self._turn + step) % len(self.all)] for step in range(len(self.all))]
        self._turn += 1
        return min(order, key=lambda item: item.load)

    def _number(self, named: str) -> int | None:
        try:
            return int(named)
        except ValueError:
            if self._speech is Speech.SGLANG:
                raise ApiError(400, f"x-data-parallel-rank must be an integer, got {named!r}") from None
            return None

    def kill(self, rank: int) -> None:
        """Let a rank die. Its own requests get no further token."""
        self.dead = True
        for number, item in enumerate(self.all):
            if number == rank:
                item.stop()
            else:
                item.abort()

    def collect(self) -> Iterator[Metric]:
        """Yield the metrics of all ranks; what has no label of the rank is summed."""
        families: dict[str, Metric] = {}
        for engine in self.all:
            for metric in engine.metrics.registry.collect():
                family = families.setdefault(metric.name, metric)
                if family is not metric:
                    family.samples = _summed([*family.samples, *metric.samples])
        yield from families.values()


def _summed(samples: list[Sample]) -> list[Sample]:
    result: dict[tuple[str, tuple[tuple[str, str], ...]], Sample] = {}
    for sample in samples:
        key = sample.name, tuple(sorted(sample.labels.items()))
        # the time at which a counter began is no count
        same = result.get(key)
        result[key] = (
            sample._replace(value=sample.value + same.value)
            if same and not sample.name.endswith("_created")
            else sample
        )
    return list(result.values())
