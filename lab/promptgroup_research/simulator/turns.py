"""The subject of the simulation: sessions and their requests."""

from dataclasses import dataclass, field


@dataclass(slots=True, eq=False)
class Turn:
    """One request, and its course."""

    session: "Session"
    nodes: tuple[int, ...]
    """The prompt as a path in the tree of all prompts: a node is a stretch of tokens, and names all before it too."""
    sizes: tuple[int, ...]
    """Tokens of each node."""
    output: int
    """Tokens of the answer, at least 1."""
    number: int
    """Place in its session, from 0."""
    think: float = 0.0
    """Seconds between the end of the turn before and this one; for the first, since the session began."""
    prompt: int = 0
    history: int = 0
    """Tokens before the last message; 0 on a first turn."""
    arrived: float = -1.0
    replica: int = -1
    sent: float = -1.0
    """Time at which the router passed it on."""
    cached: int = -1
    """Tokens that were in the cache or copied to it, as reported by the engine."""
    copied: int = 0
    """Leading tokens that are cached after a tier's copy; those in the cache before are included."""
    admitted: float = -1.0
    first: float = -1.0
    """Time of the first token; -1 before."""
    ended: float = -1.0
    tries: int = 0
    refused: bool = False
    """Whether the client gave up on it."""
    pick: object = None
    """State of the policy for it."""

    def __post_init__(self) -> None:
        self.prompt = sum(self.sizes)
        self.history = self.prompt - self.sizes[-1] if self.number else 0

    @property
    def ttft(self) -> float:
        """Seconds to the first token."""
        return self.first - self.arrived


@dataclass(slots=True, eq=False)
class Session:
    """One conversation."""

    key: int
    """64-bit hash that names it."""
    prefix: int
    """Hash of its Tier-1 prefix."""
    tier1: int
    """Tokens of that prefix: the first node's, 0 for none."""
    began: float
    turns: list[Turn] = field(default_factory=list)
    group: int = -1
    """Task group, -1 for none."""
