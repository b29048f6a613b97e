"""What is linted: one prompt, declared or sent."""

import enum
from dataclasses import dataclass

from promptgroup_cli.lint.finding import FindingPlace
from promptgroup_router.apis.request import ApiKind, ParsedRequest

TEXT_BYTES = 2048
"""Of a text completion, what is taken for its prompt: no field says where it ends. The router places by as much."""


class Origin(enum.Enum):
    """Where a prompt was found."""

    PROMPT = "prompt"
    MANIFEST = "manifest"
    """The prompt of a PromptGroup: sent as it stands."""
    REQUEST = "request"
    """Rendered and sent."""


@dataclass(frozen=True, slots=True)
class LintSubject:
    """One prompt."""

    file: str
    line: int
    """Where its text begins; of a request where the request stands."""
    origin: Origin
    model: str
    system: str
    tools: str
    """Canonical form, empty for none."""
    ask: ParsedRequest | None = None
    """The request that brings it."""
    lines: bool = False
    """Whether the lines of the system text are lines of the file."""
    secret: bool = False
    """Whether it comes from a Secret: then none of it is shown, whatever was asked for."""

    def texts(self) -> tuple[tuple[str, str], ...]:
        """(field, text) of the parts, in the order in which chat templates put them."""
        return tuple((field, text) for field, text in (("tools", self.tools), ("system", self.system)) if text)

    def place(self, field: str, text: str, start: int) -> FindingPlace:
        """Where a character of a part stands."""
        line = self.line + (text.count("\n", 0, start) if self.lines and field == "system" else 0)
        return FindingPlace(self.file, line, field, size(text, start))


def sent(file: str, line: int, ask: ParsedRequest) -> LintSubject:
    """The prompt of a request."""
    system = ask.system if ask.kind is ApiKind.CHAT else ask.system[:TEXT_BYTES]
    return LintSubject(file, line, Origin.REQUEST, ask.model, system, ask.tools, ask)


def size(text: str, end: int | None = None) -> int:
    """Bytes of a text's first characters in UTF-8; a lone surrogate counts as three, as it would be sent."""
    part = text[:end]
    return len(part) if part.isascii() else len(part.encode(errors="surrogatepass"))
