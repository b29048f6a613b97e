"""A group's semantic cache: when the answer to a similar question may be given. Standard library only."""

import enum
from dataclasses import dataclass


class SemanticMode(enum.StrEnum):
    """The use that is made of a similar question."""

    SHADOW = "Shadow"
    """Routers count what they would have answered, and answer nothing by it."""
    ANSWER = "Answer"
    """Routers give the answer to the similar question."""


@dataclass(frozen=True, slots=True)
class SemanticCaching:
    """The rules by which two questions count as one."""

    mode: SemanticMode
    threshold: float
    """Least cosine similarity of the embeddings of two questions, above 0 and at most 1."""
    url: str
    """URL of an endpoint for embeddings as OpenAI defines it (`/v1/embeddings`)."""
    model: str
    """Model that the endpoint is asked for."""
    budget: int
    """Most milliseconds for which a request waits for the endpoint."""
    max_entries: int
    """Most questions that a router process remembers."""
    credential: str = ""
    """Secret and key (`name/key`) of what the endpoint asks for as a bearer token; empty for nothing."""
