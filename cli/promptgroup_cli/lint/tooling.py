"""Tools: chat templates put them first, so that their order and spelling affect all text that follows."""

from collections.abc import Iterator
from dataclasses import dataclass, field

import orjson
import xxhash

from promptgroup_cli.lint.finding import Finding, FindingPlace, Rule, Severity
from promptgroup_cli.lint.subject import LintSubject

_FIRST = "tools stand in front of the system text: where they differ nothing is found in cache"

TOOLS_ORDER = Rule(
    "tools-order", Severity.ERROR, "the same tools in another order", _FIRST, "sort the list, by the functions' names"
)
TOOLS_KEY_ORDER = Rule(
    "tools-key-order",
    Severity.WARNING,
    "the same tools with their JSON's keys in another order",
    _FIRST + "; the router of a PromptGroup puts keys in order, an engine does not",
    "serialise with sorted keys, or send them through the router",
)
TOOLS_VARY = Rule(
    "tools-vary",
    Severity.WARNING,
    "one system text with different sets of tools",
    _FIRST,
    "send all tools always, and say in the last message which ones count; or give each set a group",
)
RULES = (TOOLS_ORDER, TOOLS_KEY_ORDER, TOOLS_VARY)

TRACKED = 4096
"""Prompts whose tools are compared; requests of further ones are ignored."""
SETS = 256
"""Sets of tools of one system text that are distinguished."""


@dataclass(slots=True)
class _Lists:
    """The tool lists of one system text of one model."""

    orders: dict[int, int] = field(default_factory=dict)
    """Hash of a set → hash of its first list."""
    spellings: dict[int, int] = field(default_factory=dict)
    """Hash of a list → hash of its first spelling."""
    requests: int = 0
    by_rule: dict[str, Finding] = field(default_factory=dict)
    """Findings by rule."""


class Tooling:
    """The tools of all requests."""

    def __init__(self) -> None:
        self._by_text: dict[int, _Lists] = {}

    def see(self, subject: LintSubject) -> None:
        """Compare a request's tools with those of earlier requests."""
        request = subject.ask
        if request is None or not request.tools:
            return
        text = _hash(request.model.encode() + b"\0" + subject.system.encode())
        lists = self._by_text.get(text)
        if lists is None:
            if len(self._by_text) >= TRACKED:
                return
            lists = self._by_text[text] = _Lists()
        lists.requests += 1
        place = FindingPlace(subject.file, subject.line, "tools", 0)
        listed = _hash(request.tools.encode())
        tools = orjson.loads(request.tools)
        unordered = _hash(b"\0".join(sorted(orjson.dumps(tool) for tool in tools)))
        if unordered not in lists.orders:
            if lists.orders:
                _note(lists, TOOLS_VARY, place, f"{TOOLS_VARY.title} ({{}} sets)")
            if len(lists.orders) < SETS:
                lists.orders[unordered] = listed
        elif lists.orders[unordered] != listed:
            _note(lists, TOOLS_ORDER, place, TOOLS_ORDER.title)
        spelled = _hash(orjson.dumps(request.doc["tools"]))
        if len(lists.spellings) < SETS and lists.spellings.setdefault(listed, spelled) != spelled:
            _note(lists, TOOLS_KEY_ORDER, place, TOOLS_KEY_ORDER.title)

    def findings(self) -> Iterator[Finding]:
        """Yield the differences between tool lists."""
        for lists in self._by_text.values():
            for finding in lists.by_rule.values():
                text = finding.message.format(len(lists.orders))
                yield Finding(finding.rule, finding.severity, finding.place, text, lists.requests)


def _note(lists: _Lists, rule: Rule, place: FindingPlace, value: str) -> None:
    lists.by_rule.setdefault(rule.id, Finding(rule, rule.severity, place, value))


def _hash(content: bytes) -> int:
    return xxhash.xxh3_64_intdigest(content)
