"""Rules, and findings of them. A finding holds no text of a prompt unless --show requests it."""

import enum
from dataclasses import dataclass


class Severity(enum.IntEnum):
    """The severity of a finding; the words are SARIF's levels."""

    NOTE = 1
    """Probably harmless, or cheap."""
    WARNING = 2
    """Breaks caches if the rule's assumption about the text is right."""
    ERROR = 3
    """Breaks caches: the requests of the log show it, or it cannot be anything else."""


@dataclass(frozen=True, slots=True)
class Rule:
    """A kind of finding."""

    id: str
    severity: Severity
    """Severity of a finding unless its case is better or worse."""
    title: str
    why: str
    """Effect on the cache."""
    way_out: str


@dataclass(frozen=True, slots=True)
class FindingPlace:
    """The place of a finding."""

    file: str
    line: int
    """From 1 on; of a log the line of the request."""
    field: str
    """Part of the prompt: `system`, `tools` (in canonical form), `messages`, or a field of the body."""
    offset: int
    """Bytes of UTF-8 before it, in that part."""


@dataclass(frozen=True, slots=True)
class Finding:
    """A finding of a rule."""

    rule: Rule
    severity: Severity
    place: FindingPlace
    message: str
    requests: int = 1
    """Requests that have it."""
    excerpt: str = ""
    """Text of the prompt around it, where --show requests it."""
