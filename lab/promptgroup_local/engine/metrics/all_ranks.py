"""One page for the data-parallel ranks of an engine, each of which has its series in a registry of its own."""

from collections.abc import Iterator, Sequence

from prometheus_client import CollectorRegistry, Metric
from prometheus_client.registry import Collector
from prometheus_client.samples import Sample


class AllRanks(Collector):
    """The metrics of several registries."""

    def __init__(self, registries: Sequence[CollectorRegistry]) -> None:
        self._registries = registries

    def collect(self) -> Iterator[Metric]:
        """Yield the metrics of all ranks; series without a rank label are summed."""
        families: dict[str, Metric] = {}
        for registry in self._registries:
            for metric in registry.collect():
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
