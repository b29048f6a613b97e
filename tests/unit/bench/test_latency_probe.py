"""The order of what the probe of the operator's bench writes and waits for, and the measurements of a time."""

from collections.abc import Iterator
from pathlib import Path

import pytest

from bench.operator_scale.latency_probe import LatencyProbe, _chain


class Client:
    def __init__(self) -> None:
        self.written: list[tuple[str, str]] = []
        self._values: list[tuple[str, str]] = []

    def annotate(self, plural: str, value: str) -> None:
        self.written.append((plural, value.partition(" ")[0]))
        self._values.append((plural, value))

    def events(self, plural: str) -> Iterator[str]:
        """What is there first, then what was written of this kind; reading on before a write would wait forever."""
        yield "before"
        seen = 0
        while True:
            values = [value for kind, value in self._values if kind == plural]
            assert seen < len(values), "nothing was written to wait for"
            yield values[seen]
            seen += 1


def test_a_measurement_is_two_writes_after_a_pod_was_seen():
    client = Client()
    seconds = _chain(client, client.events("pods"), client.events("configmaps"))
    assert client.written == [("pods", "warm"), ("pods", "routed"), ("configmaps", "routed")]
    assert 0 <= seconds < 5


def test_only_measurements_of_a_time_count_and_they_ascend():
    probe = LatencyProbe("https://127.0.0.1:1", *map(Path, ("ca", "certificate", "key")))
    probe._took = [(10.0, 0.3), (11.0, 0.1), (12.0, 0.2), (20.0, 9.0)]
    assert probe.seconds(10.0, 20.0) == pytest.approx([0.1, 0.2, 0.3])
