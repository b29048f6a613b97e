"""Text to tokens and back, without a vocabulary: a token is a piece of at most four bytes of UTF-8 text.

Four bytes a token is the mean of natural-language tokenizers on English. Pieces are counted from the start of each
text, so that the tokens of a text's whole pieces are a prefix of the tokens of every longer text. The encoding is
exact: `detokenize(tokenize(text)) == text` for every text. Numbers have 32 bits, the width that clients of engines give
to a token.
"""

import enum
import struct
from collections.abc import Iterable, Sequence

PIECE_BYTES = 4
"""Bytes of text in a token."""

_SHORT = 0xF8 << 24
"""No byte of UTF-8 is 0xF8 or more, so the numbers of whole pieces end here. Those of shorter pieces follow: a leading
1 byte keeps a piece's length and its leading zero bytes."""


class Special(enum.IntEnum):
    """Tokens that no text yields: they mark the parts of a chat."""

    BEGIN = 0xFF000001
    END = 0xFF000002
    TOOLS = 0xFF000003
    SYSTEM = 0xFF000004
    USER = 0xFF000005
    ASSISTANT = 0xFF000006
    TOOL = 0xFF000007


def tokenize(text: str) -> list[int]:
    """Tokens of a text: whole pieces, then one shorter piece when bytes are left over."""
    data = text.encode("utf-8", "surrogatepass")
    whole = len(data) // PIECE_BYTES
    tokens = list(struct.unpack_from(f">{whole}I", data))
    if rest := data[whole * PIECE_BYTES :]:
        tokens.append(_SHORT + int.from_bytes(b"\1" + rest))
    return tokens


def detokenize(tokens: Iterable[int]) -> str:
    """The text of tokens; a special token reads as its name, bytes that are no UTF-8 as U+FFFD.

    Raises:
        ValueError: a number that is no token.
    """
    return b"".join(_piece(token) for token in tokens).decode("utf-8", "replace")


class NewText:
    """The text of tokens as they are generated, in the form in which vLLM streams it.

    A token that ends within a character has no text: its text follows with the token that completes the character.
    After a prompt that ends within a character all text is new, that of the prompt too.
    """

    def __init__(self, prompt: Sequence[int]) -> None:
        data = b"".join(map(_piece, prompt))
        self._untold = data if _is_cut(data) else b""

    def add(self, tokens: Iterable[int]) -> str:
        """Return the text that is new with these tokens."""
        result = ""
        for token in tokens:
            self._untold += _piece(token)
            if not _is_cut(self._untold):
                result += self._untold.decode("utf-8", "replace")
                self._untold = b""
        return result


def _is_cut(data: bytes) -> bool:
    return data.decode("utf-8", "replace").endswith("\N{REPLACEMENT CHARACTER}")


def _piece(token: int) -> bytes:
    if 0 <= token < _SHORT:
        return token.to_bytes(PIECE_BYTES)
    if min(Special) <= token <= max(Special):
        return f"<|{Special(token).name.lower()}|>".encode()
    if _SHORT + (1 << 8) <= token < _SHORT + (2 << 24):
        data = (token - _SHORT).to_bytes(PIECE_BYTES).lstrip(b"\0")
        if data[0] == 1:
            return data[1:]
    raise ValueError(f"{token} is no token of this tokenizer")
