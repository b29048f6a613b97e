"""`cache_control` of Anthropic's API: the places up to which its own servers cache a prompt.

Engines behind a router need none: they cache every block. Anthropic's servers cache up to a breakpoint, of which a
request has four at most, and do not cache a prefix that is shorter than the model's minimum, without an error. Source:
Anthropic's documentation of prompt caching, of November 2026.
"""

from collections.abc import Iterator, Mapping
from typing import Any, NamedTuple

import orjson
import xxhash

from promptgroup_cli.lint import volatile
from promptgroup_cli.lint.finding import Finding, FindingPlace, Rule, Severity
from promptgroup_cli.lint.length import TOKEN_BYTES
from promptgroup_cli.lint.subject import LintSubject
from promptgroup_router.apis.request import ApiKind

BREAKPOINTS = Rule(
    "breakpoints",
    Severity.ERROR,
    "more than four breakpoints (cache_control)",
    "Anthropic's servers refuse the request",
    "keep those behind the tools, the system text and the last messages: each stands for all that is in front of it",
)
BREAKPOINT_SHORT = Rule(
    "breakpoint-short",
    Severity.WARNING,
    "a breakpoint (cache_control) with too little in front of it",
    "Anthropic's servers keep nothing that is shorter than the model's minimum, and do not say so",
    "put it behind more that stays the same, such as the tools and the documents, or leave it out",
)
BREAKPOINT_VOLATILE = Rule(
    "breakpoint-volatile",
    Severity.WARNING,
    "a breakpoint (cache_control) behind text that changes",
    "each request writes the cache anew, which costs more than no cache, and none reads it",
    "put it in front of what changes: behind the last block that all requests have in common",
)
RULES = (BREAKPOINTS, BREAKPOINT_SHORT, BREAKPOINT_VOLATILE)

MOST = 4
MINIMUM = 1024
"""Tokens of the shortest prompt that is cached, for models that LONGER does not name."""
LONGER = (("opus-4-5", 4096), ("opus-4-6", 4096), ("haiku-4-5", 4096), ("haiku-3-5", 2048), ("3-haiku", 2048))
"""(part of a model's name, its minimum); `3-5-haiku` has that of `haiku-3-5`."""
SURE = 0.7
"""Share of a minimum below which an estimated length is reported: the estimate may be wrong by so much."""
FEWEST = 10
"""Fewest requests for a finding that none of them shares the text before its breakpoints."""
TRACKED = 16_384


class _Breakpoint(NamedTuple):
    place: str
    """Place in the request."""
    size: int
    """Bytes up to it, its own block included."""
    prefix: int
    """Hash of these bytes."""


class Breakpoints:
    """The breakpoints of all requests."""

    def __init__(self) -> None:
        self._findings: list[Finding] = []
        self._reported: set[str] = set()
        self._prefixes: set[int] = set()
        """Hashes of the texts before breakpoints."""
        self._requests = self._shared = 0
        """Requests with breakpoints, and how many of these have one in common with an earlier request."""
        self._first: FindingPlace | None = None

    def see(self, subject: LintSubject) -> None:
        """Check the breakpoints of a request."""
        request = subject.ask
        if request is None or request.kind is not ApiKind.MESSAGES:
            return
        points = list(_breakpoints(request.doc))
        if not points:
            return
        last = FindingPlace(subject.file, subject.line, points[-1].place, 0)
        if len(points) > MOST:
            self._tell(BREAKPOINTS, last, f"{len(points)} breakpoints (cache_control), of which four are allowed")
        least = minimum(subject.model)
        longest = points[-1].size // TOKEN_BYTES
        if longest < SURE * least:
            result = (
                f"about {longest} tokens are in front of the last breakpoint, and {least} are the least that is kept"
            )
            self._tell(BREAKPOINT_SHORT, last, result)
        for field, text in (("system", subject.system),):
            token = next(iter(volatile.tokens(text)), None)
            if token is not None and token.severity >= Severity.WARNING and _is_behind(points, field):
                result = f"a breakpoint (cache_control) behind {token.rule.title}"
                self._tell(BREAKPOINT_VOLATILE, subject.place(field, text, token.start), result)
        self._requests += 1
        self._first = self._first or last
        if any(point.prefix in self._prefixes for point in points):
            self._shared += 1
        if len(self._prefixes) < TRACKED:
            self._prefixes.update(point.prefix for point in points)

    def _tell(self, rule: Rule, place: FindingPlace, result: str) -> None:
        """Record one finding per rule and text."""
        if f"{rule.id} {result}" not in self._reported and len(self._reported) < TRACKED:
            self._reported.add(f"{rule.id} {result}")
            self._findings.append(Finding(rule, rule.severity, place, result))

    def findings(self) -> Iterator[Finding]:
        """Yield the findings about breakpoints."""
        yield from self._findings
        if self._first is not None and self._requests >= FEWEST and not self._shared:
            result = f"what is in front of the breakpoints is another text in each of {self._requests} requests"
            yield Finding(BREAKPOINT_VOLATILE, BREAKPOINT_VOLATILE.severity, self._first, result, self._requests)


def minimum(model: str) -> int:
    """Return the tokens of the shortest prompt that Anthropic's servers cache for a model."""
    name = model.lower().replace(".", "-").replace("3-5-haiku", "haiku-3-5")
    return next((least for part, least in LONGER if part in name), MINIMUM)


def _is_behind(points: list[_Breakpoint], field: str) -> bool:
    """Return True if a breakpoint is in a part of the prompt, or after it."""
    return any(point.place.startswith((field, "messages")) for point in points)


def _breakpoints(doc: Mapping[str, Any]) -> Iterator[_Breakpoint]:
    """Yield the breakpoints of a body, in the order in which its prompt is read: tools, system text, messages."""
    size, chain = 0, xxhash.xxh3_64()
    for place, block in _blocks(doc):
        result = orjson.dumps(
            {name: value for name, value in block.items() if name != "cache_control"}, option=orjson.OPT_SORT_KEYS
        )
        chain.update(result)
        text = block.get("text")
        size += len(text.encode(errors="surrogatepass")) if isinstance(text, str) else len(result)
        if block.get("cache_control"):
            yield _Breakpoint(place, size, chain.intdigest())


def _blocks(doc: Mapping[str, Any]) -> Iterator[tuple[str, Mapping[str, Any]]]:
    for part in ("tools", "system"):
        yield from _listed(part, doc.get(part))
    messages = doc.get("messages")
    for index, message in enumerate(messages if isinstance(messages, list) else ()):
        if isinstance(message, dict):
            yield from _listed(f"messages[{index}].content", message.get("content"))


def _listed(place: str, value: object) -> Iterator[tuple[str, Mapping[str, Any]]]:
    if isinstance(value, str):
        yield place, {"type": "text", "text": value}
    for index, item in enumerate(value if isinstance(value, list) else ()):
        if isinstance(item, dict):
            yield f"{place}[{index}]", item
