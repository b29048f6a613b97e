"""The order of messages: equal examples and histories that are sent in another order, or lose their beginning.

A cache holds a conversation up to the first message that differs. Examples that are drawn anew for each request, and
histories that are sorted or cut at their beginning, are computed again from there on.
"""

from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from typing import Any

import orjson
import xxhash

from promptgroup_cli.lint.finding import Finding, FindingPlace, Rule, Severity
from promptgroup_cli.lint.subject import LintSubject, placed_messages
from promptgroup_router.apis.request import SYSTEM_ROLES

MESSAGES_ORDER = Rule(
    "messages-order",
    Severity.ERROR,
    "the same messages in another order",
    "examples and histories are found in cache up to the first message that differs, so a shuffle computes all of them",
    "send examples in one order, the same for every request, and a history as it was said, the oldest first",
)
HISTORY_CUT = Rule(
    "history-cut",
    Severity.WARNING,
    "a conversation that lost its beginning",
    "every message moves to another place, so that all that is kept is computed again, at each turn that cuts more",
    "cut seldom and much (half of the history at once), or fold the beginning into a summary that then stays as it is",
)
RULES = (MESSAGES_ORDER, HISTORY_CUT)

TRACKED = 16_384
"""Beginnings, and pairs of messages, that are stored; later ones are compared with these."""
FEWEST = 4
"""Fewest messages whose order is compared: two examples, or two turns."""
MOST = 64
"""Messages of a request that are examined."""


@dataclass(slots=True)
class _Shuffle:
    first: FindingPlace
    """Place of the messages in their first order."""
    other: FindingPlace
    """First place of them in another order."""
    requests: int = 0
    """Requests with another order."""


class Ordering:
    """The messages of all requests, each with the same system text and tools for itself."""

    def __init__(self) -> None:
        self._orders: dict[tuple[int, int, int], tuple[int, FindingPlace]] = {}
        """(system text, number of messages, the messages in no order) → their first order, and its place."""
        self._shuffles: dict[int, _Shuffle] = {}
        """By system text."""
        self._pairs: dict[tuple[int, int, int], FindingPlace] = {}
        """(system text, message, the next one) → place where they follow others."""
        self._cut: Finding | None = None
        self._cuts = 0

    def see(self, subject: LintSubject) -> None:
        """Compare the messages of a request with those of earlier ones."""
        if subject.ask is None:
            return
        value = [(field, item) for field, item in placed_messages(subject.ask) if item["role"] not in SYSTEM_ROLES]
        value = value[:MOST]
        if len(value) < FEWEST - 1:
            return
        scope = _hash(f"{subject.model}\0{subject.tools}\0{subject.system}".encode(errors="surrogatepass"))
        hashes = [_message(item) for _, item in value]
        place = FindingPlace(subject.file, subject.line, value[0][0], 0)
        self._see_order(scope, hashes, place)
        self._see_cut(scope, hashes, value, place)

    def _see_order(self, scope: int, hashes: list[int], place: FindingPlace) -> None:
        """Compare the order of the first messages: of all but the last, and of each number of whole examples."""
        other: FindingPlace | None = None
        for length in sorted({*range(FEWEST, len(hashes), 2), len(hashes) - 1}):
            if length < FEWEST:
                continue
            first = hashes[:length]
            sequence = _hash(b"".join(item.to_bytes(8, "big") for item in first))
            key = (scope, length, sum(first) & 0xFFFF_FFFF_FFFF_FFFF)
            order = self._orders.get(key)
            if order is None and len(self._orders) < TRACKED:
                self._orders[key] = sequence, place
            elif order is not None and order[0] != sequence:
                other = other or order[1]
        if other is not None:
            self._shuffles.setdefault(scope, _Shuffle(other, place)).requests += 1

    def _see_cut(
        self, scope: int, hashes: list[int], value: list[tuple[str, Mapping[str, Any]]], place: FindingPlace
    ) -> None:
        """Search for the beginning of a request after the beginning of an earlier one."""
        earlier = self._pairs.get((scope, hashes[0], hashes[1]))
        if earlier is not None:
            self._cuts += 1
            if self._cut is None:
                result = f"{HISTORY_CUT.title}: {earlier.file}:{earlier.line} has these messages behind others"
                self._cut = Finding(HISTORY_CUT, HISTORY_CUT.severity, place, result)
        for index in range(1, len(hashes) - 1):
            if value[index][1]["role"] == "user" and len(self._pairs) < TRACKED and hashes[index] != hashes[0]:
                self._pairs.setdefault((scope, hashes[index], hashes[index + 1]), place)

    def findings(self) -> Iterator[Finding]:
        """Yield the findings about messages in several orders, and about cut histories."""
        for shuffle in self._shuffles.values():
            result = f"{MESSAGES_ORDER.title} than in {shuffle.first.file}:{shuffle.first.line}"
            yield Finding(MESSAGES_ORDER, MESSAGES_ORDER.severity, shuffle.other, result, shuffle.requests)
        if self._cut is not None and not self._shuffles:
            cut = self._cut
            yield Finding(cut.rule, cut.severity, cut.place, cut.message, self._cuts)


def _message(message: Mapping[str, Any]) -> int:
    result = {"role": message["role"], "content": message.get("content")}
    return _hash(orjson.dumps(result, option=orjson.OPT_SORT_KEYS))


def _hash(words: bytes) -> int:
    return xxhash.xxh3_64_intdigest(words)
