"""What is found: rules, and findings of them. Findings hold no text of a prompt but what was asked for."""

import enum
from dataclasses import dataclass


class Severity(enum.IntEnum):
    """How bad it is; the words are SARIF's levels."""

    NOTE = 1
    """Harmless as far as can be told, or cheap."""
    WARNING = 2
    """Breaks caches if it is what it looks like."""
    ERROR = 3
    """Breaks caches: the requests of the log show it, or it cannot be anything else."""


@dataclass(frozen=True, slots=True)
class Rule:
    """A kind of finding."""

    id: str
    severity: Severity
    """Where nothing says that it is worse or better."""
    title: str
    why: str
    """What it does to the cache."""
    way_out: str


@dataclass(frozen=True, slots=True)
class FindingPlace:
    """Where something is found."""

    file: str
    line: int
    """From 1 on; of a log the line of the request."""
    field: str
    """Part of the prompt: `system`, `tools` (in canonical form), `messages`, or a field of the body."""
    offset: int
    """Bytes of UTF-8 in front of it, in that part."""


@dataclass(frozen=True, slots=True)
class Finding:
    """One thing that is found."""

    rule: Rule
    severity: Severity
    place: FindingPlace
    message: str
    requests: int = 1
    """Requests that it was found in."""
    excerpt: str = ""
    """Text of the prompt around it, where that was asked for."""
