"""Header fields of HTTP/2 (RFC 7541): read by a library, written as constants."""

from hpack import Decoder, HPACKError

from promptgroup_picker.http2.budget import BLOCK_BYTES_A_UNIT, FIELD
from promptgroup_picker.http2.frames import ErrorCode, Http2Error

TABLE_BYTES = 4096
"""Size of the table that a peer may use: the default, since it may use that before it has read our settings."""
MAX_LIST_BYTES = 16384
"""Most bytes of one list of fields."""

MOST_CHANGES = 2
"""Most changes of the table's size in one list."""

INDEXED = 0x80
SIZE, MOST_SIZE = 0x20, 0x1F
"""The first byte of a change of the table's size, and the bits of it that are the size."""


class FieldReader:
    """Reads the lists of fields of one connection, in order."""

    __slots__ = ("_decoder", "_last", "_path", "cost")

    def __init__(self) -> None:
        self._decoder = Decoder(MAX_LIST_BYTES)
        self._decoder.max_allowed_table_size = TABLE_BYTES
        self._last = b""
        self._path = ""
        self.cost = 0
        """Units that the last list has cost."""

    def path(self, block: bytes) -> str:
        """Return the field `:path` of a list of fields; empty if it has none.

        Raises:
            Http2Error: the list cannot be read, and so none after it.
        """
        if block == self._last:
            self.cost = FIELD
            return self._path  # only references to the table, which are the same as long as it is
        _check_sizes(block)
        try:
            result = list(self._decoder.decode(block, raw=True))
        except HPACKError as error:
            raise Http2Error(ErrorCode.COMPRESSION_ERROR, f"header fields cannot be read: {error}") from None
        path = next((value for name, value, *_ in result if name == b":path"), b"").decode("latin-1")
        self._last, self._path = (block, path) if _changes_nothing(block) else (b"", "")
        self.cost = FIELD * len(result) + len(block) // BLOCK_BYTES_A_UNIT
        return path


def _check_sizes(block: bytes) -> None:
    """Look at the changes of the table's size with which a list begins: each is one byte or more, and no field.

    Raises:
        Http2Error: there are more than the smallest and the last one (RFC 7541 section 4.2).
    """
    at = changes = 0
    while at < len(block) and block[at] & ~MOST_SIZE == SIZE:
        changes += 1
        if changes > MOST_CHANGES:
            raise Http2Error(ErrorCode.COMPRESSION_ERROR, "a list of fields changes the table's size too often")
        if block[at] & MOST_SIZE == MOST_SIZE:  # the number goes on, until a byte without the highest bit
            at += 1
            while at < len(block) and block[at] & 0x80:
                at += 1
        at += 1


def _changes_nothing(block: bytes) -> bool:
    """Return True if a list only refers to entries by numbers below 127, so that it leaves the table as it is."""
    return bool(block) and all(INDEXED <= item < 0xFF for item in block)


def literal(name: str, value: str) -> bytes:
    """Return a field that is in no table, and is not put into one (RFC 7541 section 6.2.2)."""
    return b"\0" + _text(name) + _text(value)


def _text(text: str) -> bytes:
    data = text.encode()
    return _length(len(data)) + data


def _length(count: int) -> bytes:
    """Return a length in the form of RFC 7541 section 5.1, with a prefix of 7 bits."""
    if count < 127:
        return bytes((count,))
    out, rest = bytearray((127,)), count - 127
    while rest >= 128:
        out.append(rest % 128 + 128)
        rest //= 128
    out.append(rest)
    return bytes(out)


OK_FIELDS = b"\x88" + literal("content-type", "application/grpc")
"""The fields of an answer: `:status: 200` has a number of its own."""


def trailers(status: int, message: str = "") -> bytes:
    """Return the fields that end a call."""
    fields = literal("grpc-status", str(status))
    return fields + literal("grpc-message", _percent(message)) if message else fields


def refusal(status: int, message: str) -> bytes:
    """Return the fields of a call that is answered by them alone."""
    return OK_FIELDS + trailers(status, message)


def _percent(message: str) -> str:
    """Return a message as gRPC writes it: printable ASCII but the percent sign, all else as %XX."""
    return "".join(chr(byte) if 0x20 <= byte < 0x7F and byte != 0x25 else f"%{byte:02X}" for byte in message.encode())
