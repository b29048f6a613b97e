"""The subject of a lint: one prompt, declared or sent. Does no I/O."""

import enum
from dataclasses import dataclass

from promptgroup_cli.lint.finding import FindingPlace
from promptgroup_router.apis.request import SYSTEM_ROLES, ApiKind, ParsedRequest, text_of

TEXT_BYTES = 2048
"""Bytes of a text completion that count as its prompt: no field says where it ends. The router uses as much."""


class Origin(enum.Enum):
    """The kind of place where a prompt was found."""

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
    """Line where its text begins, or where the request stands."""
    origin: Origin
    model: str
    system: str
    tools: str
    """Canonical form, empty for none."""
    ask: ParsedRequest | None = None
    """The request that brings it."""
    lines: bool = False
    """True if the lines of the system text are lines of the file."""
    secret: bool = False
    """True if it comes from a Secret: then none of it is shown, whatever was asked for."""
    late: str = ""
    """System text that stands behind another message: it is no part of a prefix that sessions share."""
    late_index: int = 0
    """Index of that message."""

    def texts(self) -> tuple[tuple[str, str], ...]:
        """Return (field, text) of the parts, in the order in which chat templates put them."""
        parts = (("tools", self.tools), ("system", self.system), (f"messages[{self.late_index}]", self.late))
        return tuple((field, text) for field, text in parts if text)

    def place(self, field: str, text: str, start: int) -> FindingPlace:
        """Return the place of a character of a part."""
        line = self.line + (text.count("\n", 0, start) if self.lines and field == "system" else 0)
        return FindingPlace(self.file, line, field, size(text, start))


def sent_prompt(file: str, line: int, ask: ParsedRequest) -> LintSubject:
    """Return the prompt of a request."""
    system = ask.system[:TEXT_BYTES] if ask.kind is ApiKind.TEXT else ask.system
    index, late = late_system(ask)
    return LintSubject(file, line, Origin.REQUEST, ask.model, system, ask.tools, ask, late=late, late_index=index)


def late_system(ask: ParsedRequest) -> tuple[int, str]:
    """Return index and text of the system message of a request whose first message is none; (0, "") without one."""
    if not ask.has_system or ask.system or ask.doc["messages"][0]["role"] in SYSTEM_ROLES:
        return 0, ""
    found = ((index, each) for index, each in enumerate(ask.doc["messages"]) if each["role"] in SYSTEM_ROLES)
    return next(((index, text_of(each.get("content"))) for index, each in found), (0, ""))


def size(text: str, end: int | None = None) -> int:
    """Return the bytes of a text's first characters in UTF-8; a lone surrogate counts as three, as it would be sent."""
    part = text[:end]
    return len(part) if part.isascii() else len(part.encode(errors="surrogatepass"))
