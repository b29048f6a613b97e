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
    late_field: str = ""
    """Place of that message in the request."""

    def texts(self) -> tuple[tuple[str, str], ...]:
        """Return (field, text) of the parts, in the order in which chat templates put them."""
        parts = (("tools", self.tools), ("system", self.system), (self.late_field, self.late))
        return tuple((field, text) for field, text in parts if text)

    def place(self, field: str, text: str, start: int) -> FindingPlace:
        """Return the place of a character of a part."""
        line = self.line + (text.count("\n", 0, start) if self.lines and field == "system" else 0)
        return FindingPlace(self.file, line, field, size(text, start))


def sent_prompt(file: str, line: int, ask: ParsedRequest) -> LintSubject:
    """Return the prompt of a request."""
    system = ask.system[:TEXT_BYTES] if ask.kind is ApiKind.TEXT else ask.system
    field, late = late_system(ask)
    return LintSubject(file, line, Origin.REQUEST, ask.model, system, ask.tools, ask, late=late, late_field=field)


def late_system(ask: ParsedRequest) -> tuple[str, str]:
    """Return place and text of the system message of a request whose first message is none; empty without one."""
    if not ask.has_system or ask.system or ask.messages[0]["role"] in SYSTEM_ROLES:
        return "", ""
    found = ((field, each) for field, each in placed_messages(ask) if each["role"] in SYSTEM_ROLES)
    return next(((field, text_of(each.get("content"))) for field, each in found), ("", ""))


def placed_messages(ask: ParsedRequest) -> Iterator[tuple[str, Mapping[str, Any]]]:
    """Yield the messages of a request, each with its place there; other items of a response's input stand between."""
    if ask.kind is not ApiKind.RESPONSES:
        yield from ((f"messages[{index}]", each) for index, each in enumerate(ask.messages))
        return
    given = ask.doc["input"]
    places = ["input"] if isinstance(given, str) else [f"input[{i}]" for i, each in enumerate(given) if _speaks(each)]
    yield from zip(places, ask.messages, strict=True)


def _speaks(item: Mapping[str, Any]) -> bool:
    """Return True for an item of an input that is a message, and none of a tool's calls or their results."""
    return item.get("type", "message") == "message" and isinstance(item.get("role"), str)


def size(text: str, end: int | None = None) -> int:
    """Return the bytes of a text's first characters in UTF-8; a lone surrogate counts as three, as it would be sent."""
    part = text[:end]
    return len(part) if part.isascii() else len(part.encode(errors="surrogatepass"))
