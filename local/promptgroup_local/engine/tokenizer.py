"""Text to tokens and back, without a vocabulary: a token is a piece of at most four bytes of UTF-8 text.

Four bytes a token is what natural-language tokenizers average on English. Pieces are counted from the start of each
text, so that the tokens of a text's whole pieces are a prefix of the tokens of every longer text. The encoding is
exact: `detokenize(tokenize(text)) == text` for every text.
"""

import enum
import struct
from collections.abc import Iterable

PIECE_BYTES = 4
"""Bytes of text in a token."""


class Special(enum.IntEnum):
    """Tokens that no text yields: they mark the parts of a chat."""

    BEGIN = 1
    END = 2
    TOOLS = 3
    SYSTEM = 4
    USER = 5
    ASSISTANT = 6
    TOOL = 7


_MARK = 1 << (8 * PIECE_BYTES)
"""A leading 1 byte keeps a piece's length and its leading zero bytes: the number of `b"\\x01" + piece`."""

_SMALLEST = 1 << 8
"""The number of a one-byte piece `b"\\x00"`; what is below it is special."""


def tokenize(text: str) -> list[int]:
    """Tokens of a text: whole pieces, then one shorter piece when bytes are left over."""
    data = text.encode("utf-8", "surrogatepass")
    whole = len(data) // PIECE_BYTES
    tokens = [_MARK + piece for piece in struct.unpack_from(f">{whole}I", data)]
    if rest := data[whole * PIECE_BYTES :]:
        tokens.append(int.from_bytes(b"\1" + rest))
    return tokens


def detokenize(tokens: Iterable[int]) -> str:
    """The text of tokens; a special token reads as its name, bytes that are no UTF-8 as U+FFFD.

    Raises:
        ValueError: a number that is no token.
    """
    return b"".join(_piece(token) for token in tokens).decode("utf-8", "replace")


def _piece(token: int) -> bytes:
    if _SMALLEST <= token < 2 * _MARK:
        data = token.to_bytes(PIECE_BYTES + 1).lstrip(b"\0")
        if data[0] == 1:
            return data[1:]
    elif 1 <= token <= max(Special):
        return f"<|{Special(token).name.lower()}|>".encode()
    raise ValueError(f"{token} is no token of this tokenizer")
