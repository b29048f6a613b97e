"""Tool lists in the canonical form that fingerprints cover, cached by the spelling received.

Applications send the same few lists. Sorting one anew takes 100 µs for a small list, and milliseconds for the hundred
tools of an agent.
"""

import sys
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

from promptgroup_router.base.errors import ApiError

REMEMBERED_BYTES = 8 << 20
"""Most bytes that are cached for one API, of spellings and forms together: the lists of a hundred applications."""
MOST_BYTES = 1 << 20
"""Most bytes of a list: a quarter of a million tokens, and more than a declared prompt may have."""
MOST_VALUES = 50_000
"""Most separators of a list, which bound the time that sorting takes."""
LARGEST_SHARE = 32
"""A list that needs more than 1/32 of the memory is not cached: a few such lists would evict all others."""


@dataclass(frozen=True, slots=True)
class ToolForm:
    """A tool list in its two forms."""

    canonical: str
    """The form that fingerprints cover: tools as chat completions have them, in canonical form."""
    ordered: str
    """The tools in the API's own form, with keys in an order from which the engine renders the canonical form."""
    in_order: bool
    """True if the list was received in that order."""


class ToolForms:
    """The forms of the tool lists of one API; the list that was cached first is evicted first."""

    def __init__(self, forms: Callable[[list[Any]], tuple[str, str]], most_bytes: int = REMEMBERED_BYTES) -> None:
        """Start with an empty cache.

        Args:
            forms: makes the canonical and the ordered form of a list; may raise ApiError.
            most_bytes: the bound for spellings and forms together.
        """
        self._forms = forms
        self._most = most_bytes
        self._bytes = 0
        self._by_text: dict[bytes, ToolForm] = {}

    def __len__(self) -> int:
        return len(self._by_text)

    def get(self, spelled: bytes, tools: list[Any]) -> ToolForm:
        """Return the forms of a list.

        Args:
            spelled: the list as compact JSON, with keys in the order received.
            tools: the same list, parsed.

        Raises:
            ApiError: 400, the list is larger than any prompt's.
        """
        tool_form = self._by_text.get(spelled)
        if tool_form is not None:
            return tool_form
        if len(spelled) > MOST_BYTES or spelled.count(b",") > MOST_VALUES:
            message = (
                f"tools have {len(spelled)} bytes and {spelled.count(b',')} separators, the limits are {MOST_BYTES} "
            )
            raise ApiError(400, message + f"and {MOST_VALUES}: send fewer tools", param="tools", code="too_complex")
        canonical, ordered = self._forms(tools)
        form = ToolForm(canonical, ordered, spelled == ordered.encode())
        size = _size(spelled, form)
        if size <= self._most // LARGEST_SHARE:
            self._bytes += size
            self._by_text[spelled] = form
            while self._bytes > self._most:
                oldest = next(iter(self._by_text))
                self._bytes -= _size(oldest, self._by_text.pop(oldest))
        return form


def _size(spelled: bytes, form: ToolForm) -> int:
    """Return the bytes that a cached list needs."""
    same = form.canonical is form.ordered
    return len(spelled) + sys.getsizeof(form.canonical) + (0 if same else sys.getsizeof(form.ordered))
