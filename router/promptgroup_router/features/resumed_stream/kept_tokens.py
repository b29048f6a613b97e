"""Stores the tokens of one streamed answer, up to the last one whose whole text the client has.

An engine reports the ids of the prompt in the first event, and those of the answer's tokens in the event with their
text. A token that ends within a character has no text yet: the text arrives with the token that ends the character. An
answer cannot be continued after such a token, since vLLM would then treat the text of the whole prompt as new. So
tokens without a text are pending until the next one with a text, and an answer is not continued after them.

If an event has several tokens, it is uncertain whether the last one's text is in it, unless that token was the only one
of an event with a text before: then it ends with a whole character wherever it occurs.
"""

from typing import Any

MOST_BYTES = 2 << 20
"""Most bytes of ids that are stored for one answer: 300,000 tokens."""
MOST_WHOLE = 1024
"""Most tokens of one answer that are recorded as ending with a whole character."""


class KeptTokens:
    """The ids of a prompt and of its answer so far, in JSON: 6 bytes for a token."""

    __slots__ = (
        "_answer",
        "_lost",
        "_prompt",
        "_waiting",
        "_waits",
        "_whole",
        "certain",
        "finished",
        "passed_on",
        "prompt",
    )

    def __init__(self) -> None:
        self._prompt = b""
        self._answer = bytearray()
        self._waiting = bytearray()
        """The ids of the pending tokens: those without a text, after the last one with a text."""
        self._waits = 0
        """Number of pending tokens."""
        self._whole: set[int] = set()
        """Tokens that end with a whole character."""
        self._lost = False
        """True once ids are missing, or the answer has content other than plain text."""
        self.prompt = 0
        """Number of tokens of the prompt; 0 until the engine has reported them."""
        self.passed_on = 0
        """Number of tokens of the answer whose text the client has."""
        self.certain = True
        """True if the client has exactly the text of these tokens."""
        self.finished = False
        """True once the answer has a finish reason."""

    @property
    def size(self) -> int:
        """Bytes of all stored ids."""
        return len(self._prompt) + len(self._answer) + len(self._waiting)

    @property
    def complete(self) -> bool:
        """True if an engine can continue after these tokens."""
        return self.prompt > 0 and self.certain and not self._lost and not self.finished

    def ids(self) -> bytes:
        """Return all ids in the order of the tokens, as the members of a list in JSON."""
        return self._prompt + b"," + bytes(self._answer) if self._answer else self._prompt

    def give_up(self) -> None:
        """Drop all tokens: no engine can continue this answer."""
        self._lost = True
        self._prompt = b""
        self._answer.clear()
        self._waiting.clear()
        self._whole.clear()

    def begin(self, ids: Any) -> None:
        """Store the ids of the prompt, a list in JSON."""
        if self.prompt or self._lost:
            return
        if (text := _in_json(ids)) is None or not text:
            self.give_up()
            return
        self._prompt, self.prompt = text, len(ids)

    def add(self, ids: Any, text: Any) -> None:
        """Store the ids of tokens of the answer, a list in JSON, given the text of the same event."""
        if self._lost or (not ids and not text):
            return
        in_json = _in_json(ids) if self.prompt else None
        if in_json is None or not isinstance(text, str) or self.size + len(in_json) > MOST_BYTES:
            self.give_up()
            return
        if self._waiting and in_json:
            self._waiting += b","
        self._waiting += in_json
        self._waits += len(ids)
        if not text:
            return
        if len(ids) == 1:
            if self.certain and self._waits == 1 and len(self._whole) < MOST_WHOLE:
                self._whole.add(ids[0])
            self.certain = True
        else:
            self.certain = bool(ids) and ids[-1] in self._whole
        if self._answer:
            self._answer += b","
        self._answer += self._waiting
        self.passed_on += self._waits
        self._waiting.clear()
        self._waits = 0

    def go_on(self) -> None:
        """Drop the pending tokens, which have no text: the next engine generates them anew."""
        self._waiting.clear()
        self._waits = 0


def _in_json(ids: Any) -> bytes | None:
    """Return ids as the members of a list in JSON; None for values that are no ids."""
    if not isinstance(ids, list) or not all(type(token) is int and token >= 0 for token in ids):
        return None
    return b",".join([b"%d" % token for token in ids])
