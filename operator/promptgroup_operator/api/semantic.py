"""The semantic cache of a group: when routers give the answer to a similar question."""

from math import ceil
from typing import Annotated

from pydantic import Field

from promptgroup_operator.api.model import ApiModel, Duration, KeyRef, Printed, rule, rules
from promptgroup_operator.base import durations
from promptgroup_router.contract.semantic import SemanticCaching, SemanticMode

LONGEST_BUDGET = 1.0
"""Seconds: who waits for longer than this has no use for a cache."""


class EmbeddingEndpoint(ApiModel):
    """An endpoint for embeddings as OpenAI defines it, such as an engine in the cluster."""

    url: Annotated[str, Field(max_length=1024, pattern=r"^https?://[^\s/?#@]+(/[^\s?#]*)?$")]
    """URL of the endpoint, such as http://embedder.chat.svc:8000/v1/embeddings."""
    model: Printed
    """Model that it is asked for."""
    credential_from: KeyRef | None = None
    """The key of a Secret with the API key that it asks for as a bearer token."""


class SemanticSpec(ApiModel):
    """The semantic cache: a question that is similar to an earlier one gets the answer to that one."""

    model_config = rules(
        rule(
            "has(self.threshold)",
            "responses.semantic.threshold has no default: measure it on pairs of your own questions with "
            "`promptgroup responses calibrate`",
            ".threshold",
            holds=lambda semantic: semantic.threshold is not None,
        ),
        rule(
            "duration(self.budget) >= duration('1ms') && duration(self.budget) <= duration('1s')",
            "responses.semantic.budget must be from 1ms to 1s",
            ".budget",
            holds=lambda semantic: 0.001 <= durations.parse(semantic.budget).total_seconds() <= LONGEST_BUDGET,
        ),
    )

    mode: SemanticMode = SemanticMode.SHADOW
    """With Shadow, routers only count what they would have answered. With Answer, they answer."""
    threshold: Annotated[float, Field(gt=0, le=1)] | None = None
    """Least cosine similarity of two questions whose answer is one. It depends on the embeddings and on the questions,
    so it has no default: `promptgroup responses calibrate` measures it."""
    embeddings: EmbeddingEndpoint
    """The endpoint that makes embeddings of questions. It gets the last user message of each request that the exact
    cache could answer and did not."""
    budget: Duration = "50ms"
    """Longest time for which a request waits for the endpoint, from 1ms to 1s; then it goes on to an engine."""
    max_entries: Annotated[int, Field(ge=1, le=5000)] = 1000
    """Most questions that each router process remembers of the group."""


def semantic_of(spec: SemanticSpec | None) -> SemanticCaching | None:
    """Return the rules for routers; None for no semantic cache, and for one of an older schema without a threshold."""
    if spec is None or spec.threshold is None:
        return None
    key = spec.embeddings.credential_from
    return SemanticCaching(
        mode=spec.mode,
        threshold=spec.threshold,
        url=spec.embeddings.url,
        model=spec.embeddings.model,
        budget=ceil(durations.parse(spec.budget).total_seconds() * 1000),
        max_entries=spec.max_entries,
        credential=f"{key.name}/{key.key}" if key is not None else "",
    )
