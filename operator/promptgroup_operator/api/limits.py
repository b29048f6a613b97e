"""`spec.limits` of a PromptGroup: how much of it each caller may use."""

from typing import Annotated

from pydantic import Field

from promptgroup_contract.caller_rules import CallerLimits, Priority
from promptgroup_operator.api.access import CallerName
from promptgroup_operator.api.model import ApiModel

_Most = Annotated[int, Field(ge=1, le=1_000_000_000)]


class CallerLimitsSpec(ApiModel):
    """The limits of one caller. What is absent has none."""

    requests_per_minute: _Most | None = None
    """Requests of any minute."""
    tokens_per_minute: _Most | None = None
    """Tokens of prompts and answers of any minute, cached ones included."""
    requests_in_flight: Annotated[int, Field(ge=1, le=100_000)] | None = None
    """Requests at a time."""
    tokens_per_day: Annotated[int, Field(ge=1, le=1_000_000_000_000)] | None = None
    """Tokens of prompts and answers from midnight to midnight, UTC."""
    weight: Annotated[int, Field(ge=1, le=1000)] = 1
    """Share of replicas that are full, relative to the weights of the other callers of the same priority who wait."""
    priority: Priority = Priority.NORMAL
    """Class of the caller's requests that wait for room: those of a higher one go first. A caller who has waited for a
    second in a lower one gets a turn in between, so that nobody starves."""


class NamedLimitsSpec(CallerLimitsSpec):
    """The limits of a caller by name, instead of the default ones."""

    caller: CallerName
    """The caller's name, as the group's access tells it."""


class LimitsSpec(ApiModel):
    """Limits on what callers may use."""

    default: CallerLimitsSpec = CallerLimitsSpec()
    """Limits of each caller who is not listed. Callers who are not known share one such account."""
    callers: Annotated[list[NamedLimitsSpec], Field(max_length=256)] = []
    """Callers with limits of their own."""


def caller_limits(spec: CallerLimitsSpec) -> CallerLimits:
    """Return the limits as routers get them."""
    return CallerLimits(
        requests_per_minute=spec.requests_per_minute or 0,
        tokens_per_minute=spec.tokens_per_minute or 0,
        in_flight=spec.requests_in_flight or 0,
        tokens_per_day=spec.tokens_per_day or 0,
        weight=spec.weight,
        priority=spec.priority,
    )
