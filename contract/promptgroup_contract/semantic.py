"""The measurement of a semantic cache: which questions are counted as similar. Standard library only."""

from dataclasses import dataclass, field

from promptgroup_contract.wire import COUNT, TEXT, Ratio, wire


@dataclass(frozen=True, slots=True)
class SemanticCaching:
    """The rules by which two questions are counted as similar. No question is answered by another one's answer."""

    threshold: float = field(metadata=wire("threshold", Ratio()))
    """Least cosine similarity of the embeddings of two questions, above 0 and at most 1."""
    url: str = field(metadata=wire("url", TEXT))
    """URL of an endpoint for embeddings as OpenAI defines it (`/v1/embeddings`)."""
    model: str = field(metadata=wire("model", TEXT))
    """Model that requests to the endpoint name."""
    max_entries: int = field(metadata=wire("maxEntries", COUNT, minimum=1))
    """Most questions that a router process remembers."""
    credential: str = field(default="", metadata=wire("credential", TEXT))
    """Secret and key (`name/key`) of what the endpoint asks for as a bearer token; empty for nothing."""
