"""Decisions about the fields of a Deployment."""

import enum
from dataclasses import dataclass


class Verdict(enum.StrEnum):
    """The fate of a field."""

    UNCHANGED = "kept"
    """It means the same in the PromptGroup."""
    CHANGED = "changed"
    """It has another form, or another value takes its place."""
    LEFT_OUT = "left out"
    """It is not in the PromptGroup."""


@dataclass(frozen=True, slots=True)
class FieldDecision:
    """The decision about one field."""

    field: str
    """Field or argument, as the Deployment has it."""
    verdict: Verdict
    why: str = ""
    """The field that has it now, or the reason; empty where it stays in its place."""


class AdoptionError(Exception):
    """The Deployment cannot become a host. The message says why, and the way out."""
