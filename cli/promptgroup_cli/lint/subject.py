"""The subject of a lint: one prompt, declared or sent."""

import enum
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from typing import Any

from promptgroup_cli.lint.finding import FindingPlace
from promptgroup_router.apis.request import SYSTEM_ROLES, ApiKind, ParsedRequest, text_of

TEXT_BYTES = 2048
"""Bytes of a text completion that count as its prompt: no field says where it ends. The router uses as much."""


class Origin(enum.Enum):
    """The kind of source of a prompt."""

    PROMPT = "prompt"
    MANIFEST = "manifest"
    """The prompt of a PromptGroup: sent unchanged."""
    REQUEST = "request"
    """Rendered and sent."""


@dataclass(frozen=True, slots=True)
class LintSubject:
    """One prompt."""

    file: str
    line: int
    """Line where its text begins, or line of the request."""
    origin: Origin
    model: str
    system: str
    tools: str
    """Canonical form, empty for none."""
    ask: ParsedRequest | None = None
    """The request that contains it."""
    lines: bool = False
    """True if the lines of the system text are lines of the file."""
    secret: bool = False
    """True if it comes from a Secret: then none of it is shown, whatever the flags."""
    late: str = ""
    """System text after another message: it is not part of a prefix that sessions share."""
    late_field: str = ""
    """Place of that message in the request."""

    def texts(self) -> tuple[tuple[str, str], ...]:
        """Return (field, text) of the parts, in the order of chat templates."""
        parts = (("tools", self.tools), ("system", self.system), (self.late_field, self.late))
        return tuple((field, text) for field, text in parts if text)

    def place(self, field: str, text: str, start: int) -> FindingPlace:
        """Return the place of a character of a part."""
        line = self.line + (text.count("\n", 0, start) if self.lines and field == "system" else 0)
        return FindingPlace(self.file, line, field, size(text, start))


def sent_prompt(file: str, line: int, request: ParsedRequest) -> LintSubject:
    """Return the prompt of a request."""
    system = request.system[:TEXT_BYTES] if request.kind is ApiKind.TEXT else request.system
    field, late = late_system(request)
    return LintSubject(
        file, line, Origin.REQUEST, request.model, system, request.tools, request, late=late, late_field=field
    )


def late_system(request: ParsedRequest) -> tuple[str, str]:
    """Return place and text of the system message of a request whose first message is none; empty without one."""
    if not request.has_system or request.system or request.messages[0]["role"] in SYSTEM_ROLES:
        return "", ""
    result = ((field, item) for field, item in placed_messages(request) if item["role"] in SYSTEM_ROLES)
    return next(((field, text_of(item.get("content"))) for field, item in result), ("", ""))


def placed_messages(request: ParsedRequest) -> Iterator[tuple[str, Mapping[str, Any]]]:
    """Yield the messages of a request, each with its place there; other items of a response's input are skipped."""
    if request.kind is not ApiKind.RESPONSES:
        yield from ((f"messages[{index}]", item) for index, item in enumerate(request.messages))
        return
    given = request.doc["input"]
    places = ["input"] if isinstance(given, str) else [f"input[{i}]" for i, item in enumerate(given) if _speaks(item)]
    yield from zip(places, request.messages, strict=True)


def _speaks(item: Mapping[str, Any]) -> bool:
    """Return True for an item of an input that is a message, not a tool's call or its result."""
    return item.get("type", "message") == "message" and isinstance(item.get("role"), str)


def size(text: str, end: int | None = None) -> int:
    """Return the bytes of a text's first characters in UTF-8; a lone surrogate counts as three, as it would be sent."""
    part = text[:end]
    return len(part) if part.isascii() else len(part.encode(errors="surrogatepass"))
