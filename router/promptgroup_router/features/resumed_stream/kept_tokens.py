"""Keeps the tokens of one streamed answer, up to the last of which the client has the whole text.

An engine tells the ids of the prompt in the first event, and those of the answer's tokens in the event that has their
text. A token that ends within a character has no text yet: it comes with the token that ends the character. To go on
behind such a token is not possible: vLLM then takes the text of the whole prompt for new. So tokens without a text wait
here for the next that has one, and are not gone on behind.

Of several tokens in one event nobody knows whether the last one's text is in it, unless that token was seen alone with
a text before: then it ends with a whole character wherever it stands.
"""

from typing import Any

MOST_BYTES = 2 << 20
"""Most bytes of ids that are kept of one answer: 300,000 tokens."""
MOST_WHOLE = 1024
"""Most tokens of one answer that are remembered as ending with a whole character."""


class KeptTokens:
    """The ids of a prompt and of its answer so far, as they stand in JSON: 6 bytes for a token."""

    __slots__ = ("_answer", "_lost", "_prompt", "_waiting", "_waits", "_whole", "certain", "finished", "prompt", "told")

    def __init__(self) -> None:
        self._prompt = b""
        self._answer = bytearray()
        self._waiting = bytearray()
        """Those without a text, behind the last that has one."""
        self._waits = 0
        """Number of them."""
        self._whole: set[int] = set()
        """Tokens that end with a whole character."""
        self._lost = False
        """True once the ids are not known, or something else than plain text was answered."""
        self.prompt = 0
        """Number of tokens of the prompt; 0 while it is not known."""
        self.told = 0
        """Number of tokens of the answer of which the client has the text."""
        self.certain = True
        """True if it has the whole text of all of them, and no more."""
        self.finished = False
        """True once the answer has told why it ends."""

    @property
    def size(self) -> int:
        """Bytes that are kept."""
        return len(self._prompt) + len(self._answer) + len(self._waiting)

    @property
    def complete(self) -> bool:
        """True if an engine can go on behind these tokens."""
        return self.prompt > 0 and self.certain and not self._lost and not self.finished

    def ids(self) -> bytes:
        """Return all ids in the order of the tokens, as the members of a list in JSON."""
        return self._prompt + b"," + bytes(self._answer) if self._answer else self._prompt

    def give_up(self) -> None:
        """Keep no tokens: nobody can go on with this answer."""
        self._lost = True
        self._prompt = b""
        self._answer.clear()
        self._waiting.clear()
        self._whole.clear()

    def begin(self, ids: Any) -> None:
        """Keep the ids of the prompt, a list in JSON."""
        if self.prompt or self._lost:
            return
        if (text := _in_json(ids)) is None or not text:
            self.give_up()
            return
        self._prompt, self.prompt = text, len(ids)

    def add(self, ids: Any, text: Any) -> None:
        """Keep the ids of tokens of the answer, a list in JSON, with the text that came with them."""
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
        self.told += self._waits
        self._waiting.clear()
        self._waits = 0

    def go_on(self) -> None:
        """Forget the tokens without a text: the next engine draws them anew."""
        self._waiting.clear()
        self._waits = 0


def _in_json(ids: Any) -> bytes | None:
    """Return ids as the members of a list in JSON; None for what are no ids."""
    if not isinstance(ids, list) or not all(type(token) is int and token >= 0 for token in ids):
        return None
    return b",".join([b"%d" % token for token in ids])
