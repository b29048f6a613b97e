"""Starts of replicas in the status of a PromptGroup."""

from typing import Annotated, Literal

from pydantic import Field

from promptgroup_operator.api.model import ApiModel

LATEST = 5
"""Number of starts whose durations are recorded."""
SHOWN = 8
"""Most replicas that are listed while they start."""

Seconds = Annotated[int, Field(ge=0)]


class StartingReplica(ApiModel):
    """A replica that starts."""

    pod: Annotated[str, Field(max_length=253)]
    """Its pod."""
    phase: Literal["Pending", "Scheduled", "Pulling", "Loading", "Warming"]
    """Pending until the pod has a node; Scheduled while its volumes and network are set up; Pulling while images are
    pulled; Loading from the start of the engine's process until it answers, in which weights are read and kernels are
    compiled; Warming until the prompt is proven to be in its cache."""
    since: Annotated[str, Field(json_schema_extra={"format": "date-time"})] | None = None
    """Time at which the phase began."""


class PhaseSeconds(ApiModel):
    """Seconds of the phases of a start."""

    pending: Seconds
    """Seconds until the pod had a node."""
    scheduled: Seconds
    """Seconds in which volumes and network were set up."""
    pulling: Seconds
    """Seconds in which images were pulled, and init containers ran."""
    loading: Seconds
    """Seconds from the start of the engine's process until it answered."""
    warming: Seconds
    """Seconds from then until the proof of warmth."""


class StartStatus(ApiModel):
    """Durations of the starts of replicas, from the creation of the pod to the proof of warmth."""

    finished_at: Annotated[str, Field(json_schema_extra={"format": "date-time"})]
    """Time at which the latest of these starts was over."""
    seconds: Seconds
    """Median of the latest starts. Sizing expects a new replica after this time."""
    latest_seconds: Annotated[list[Seconds], Field(max_length=LATEST)]
    """Seconds of the latest starts, the newest last."""
    phase_seconds: PhaseSeconds
    """Seconds of the phases of the latest one."""
