"""The two text formats of metrics: Prometheus' own, and OpenMetrics, with exemplars, for clients that accept it.

Does no I/O and reads no clock.
"""

from collections.abc import Iterable
from typing import NamedTuple

TOTAL = "_total"
"""The end of every counter's name. OpenMetrics leaves it out where it names a counter's kind."""
_OPENMETRICS = b"application/openmetrics-text"
_PLAIN = frozenset((b"text/plain", b"text/*", b"*/*"))
_WEIGHT = b"q="


class TextFormat(NamedTuple):
    """A text format."""

    content_type: bytes
    openmetrics: bool

    def heading(self, name: str, help_text: str, kind: str) -> Iterable[str]:
        """Return the lines that introduce a metric."""
        named = name.removesuffix(TOTAL) if self.openmetrics and kind == "counter" else name
        return f"# HELP {named} {help_text}", f"# TYPE {named} {kind}"

    @property
    def end(self) -> str:
        """The last line of a page."""
        return "# EOF\n" if self.openmetrics else ""


PROMETHEUS = TextFormat(b"text/plain; version=0.0.4; charset=utf-8", openmetrics=False)
OPENMETRICS = TextFormat(_OPENMETRICS + b"; version=1.0.0; charset=utf-8", openmetrics=True)


def accepted(accept: bytes) -> TextFormat:
    """Return the format for a client, by its header `Accept` (RFC 9110 section 12.5.1); empty for none."""
    openmetrics = plain = 0.0
    for part in accept.lower().split(b","):
        media, _, parameters = part.partition(b";")
        if media.strip() == _OPENMETRICS:
            openmetrics = max(openmetrics, _weight(parameters))
        elif media.strip() in _PLAIN:
            plain = max(plain, _weight(parameters))
    return OPENMETRICS if openmetrics > 0 and openmetrics >= plain else PROMETHEUS


def _weight(parameters: bytes) -> float:
    """Return the weight that a client gives a media type: 1 unless it states a lower one."""
    for part in parameters.split(b";"):
        if part.strip().startswith(_WEIGHT):
            try:
                return float(part.strip()[len(_WEIGHT) :])
            except ValueError:
                return 0.0
    return 1.0


class Exemplar(NamedTuple):
    """One of a bucket's observations, whose trace is recorded."""

    trace: int
    """The id of the trace: 128 bits."""
    value: float
    at: float
    """Seconds since 1970."""

    def text(self) -> str:
        """Return the text that follows the value of the bucket."""
        return f' # {{trace_id="{self.trace:032x}"}} {self.value!r} {self.at:.3f}'


def number(value: float) -> str:
    """Return a value as both formats write it."""
    return str(int(value)) if value == int(value) else repr(value)
