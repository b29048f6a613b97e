"""The measurement of a semantic cache: how many questions of a group are similar to earlier ones."""

from typing import Annotated, Literal

from pydantic import Field

from promptgroup_contract.semantic import SemanticCaching
from promptgroup_operator.api.model import ApiModel, KeyRef, Printed, rule, rules


class EmbeddingEndpoint(ApiModel):
    """An endpoint for embeddings as OpenAI defines it, such as an engine in the cluster."""

    url: Annotated[str, Field(max_length=1024, pattern=r"^https?://[^\s/?#@]+(/[^\s?#]*)?$")]
    """URL of the endpoint, such as http://embedder.chat.svc:8000/v1/embeddings."""
    model: Printed
    """Model that it is asked for."""
    credential_from: KeyRef | None = None
    """The key of a Secret with the API key that it asks for as a bearer token."""


class SemanticSpec(ApiModel):
    """The measurement of a semantic cache: routers count the questions that are similar to an earlier one."""

    model_config = rules(
        rule(
            "has(self.threshold)",
            "responses.semantic.threshold has no default: measure it on pairs of your own questions with "
            "`promptgroup responses calibrate`",
            ".threshold",
            holds=lambda semantic: semantic.threshold is not None,
        ),
    )

    mode: Literal["Shadow"] = "Shadow"
    """Routers count what a semantic cache would answer, and answer nothing by it: no comparison of two questions shows
    that they ask the same."""
    threshold: Annotated[float, Field(gt=0, le=1)] | None = None
    """Least cosine similarity of two questions that count as similar. It depends on embeddings and questions, so it has
    no default: `promptgroup responses calibrate` measures it."""
    embeddings: EmbeddingEndpoint
    """The endpoint that makes embeddings of questions. It gets the last user message of each request that the exact
    cache could answer and did not."""
    max_entries: Annotated[int, Field(ge=1, le=5000)] = 1000
    """Most questions that each router process remembers of the group."""


NEEDS_EXACT_CACHE = rule(
    "!has(self.semantic) || self.cache == 'Exact'",
    "responses.semantic compares questions that the exact cache keeps: set responses.cache to Exact, too",
    ".semantic",
    holds=lambda responses: responses.semantic is None or responses.cache == "Exact",
)
"""The rule of a `ResponsesSpec`."""


def semantic_of(spec: SemanticSpec | None) -> SemanticCaching | None:
    """Return the rules for routers; None to count nothing, and for rules of an older schema without a threshold."""
    if spec is None or spec.threshold is None:
        return None
    key = spec.embeddings.credential_from
    return SemanticCaching(
        threshold=spec.threshold,
        url=spec.embeddings.url,
        model=spec.embeddings.model,
        max_entries=spec.max_entries,
        credential=f"{key.name}/{key.key}" if key is not None else "",
    )
