"""Makes inputs for parsers from a corpus, by mutations that know lines, fields, numbers and line ends.

An input follows from the corpus, a seed and a number, so that one that fails can be made again alone.
"""

import random
import re
from collections.abc import Callable, Sequence
from pathlib import Path

CORPUS = Path(__file__).parent / "corpus"
LARGEST = 1 << 16
"""Most bytes of an input: as many as a head may have."""
MUTATIONS_OF_ONE = (0, 1, 1, 1, 2, 2, 3, 6)
LONG_ONE_IN = 64
"""One repetition of so many fills the input: it is what shows work that grows faster than its length."""

NUMBERS = (
    *(b"0", b"00", b"1", b"-1", b"+1", b"7", b"8", b"0x8", b"1_0", b"1.5", b"1e3", b"1e308", b"NaN", b"\xd9\xa3"),
    *(b"ffff", b"7fffffffffffffff", b"ffffffffffffffff", b"999999999999999", b"9" * 16, b"9" * 400, b"f" * 15),
)
PIECES = (
    *(b"", b"\r", b"\n", b"\r\n", b"\r\n\r\n", b"\0", b"\t", b" ", b"\x0b", b"\x7f", b"\x80", b"\xff", b"\xc3\xa9"),
    *(b":", b";", b",", b"=", b'"', b"\\", b"{", b"}", b"/", b"?", b"#", b"*", b"@", b"[::1]", b"%00", b"%zz"),
)
LINES: dict[str, tuple[bytes, ...]] = {
    "heads": (
        *(b"content-length: 3", b"Content-Length: 0", b"content-length: 3, 3", b"content-length : 3", b"host: a b"),
        *(b"transfer-encoding: chunked", b"Transfer-Encoding: gzip, chunked", b"transfer-encoding: \x0bchunked"),
        *(b"connection: close", b"Connection: keep-alive, x-hop", b"connection: content-length", b"host: r:99999"),
        *(b"expect: 100-continue", b" folded: line", b"x: caf\xc3\xa9", b"x", b": y", b"x:", b"upgrade: h2c"),
        *(b"GET / HTTP/1.1", b"POST http://r/x?y HTTP/1.1", b"PRI * HTTP/2.0", b"HTTP/1.1 100 Continue"),
    ),
    "chunked": (b"0", b"3", b"3;x=y", b"A ;z", b"x: y", b"content-length: 3", b"000000000000000", b"3 ", b" 3", b";"),
    "sse": (
        *(b"data: [DONE]", b": comment", b"event: message_stop", b"data", b"retry: 1", b"id: 1\0"),
        *(b'data: {"usage":{"prompt_tokens":5,"completion_tokens":1}}', b'data: {"usage":null}', b'data: {"usage":'),
        *(b'"usage": {"input_tokens": 7, "cache_read_input_tokens": 3}', b"\xef\xbb\xbfdata: {}", b"\n\n"),
        b'data: {"x":"\\"usage\\":{\\"prompt_tokens\\":9}"}',
    ),
}  # fmt: skip

_NUMBER = re.compile(rb"[0-9A-Fa-f]+")

Mutation = Callable[["Mutator", bytes, random.Random], bytes]


class Mutator:
    """A source of inputs of one kind."""

    def __init__(self, kind: str) -> None:
        self.kind = kind
        self.corpus: Sequence[bytes] = [path.read_bytes() for path in sorted((CORPUS / kind).iterdir())]
        self._lines = LINES[kind]

    def make(self, seed: int, number: int) -> tuple[bytes, random.Random]:
        """Return an input, and the source of what else is chosen for it."""
        chooser = random.Random(seed << 40 | number)
        data = chooser.choice(self.corpus)
        for _ in range(chooser.choice(MUTATIONS_OF_ONE)):
            data = chooser.choice(_MUTATIONS)(self, data, chooser)[:LARGEST]
        return data, chooser

    def _piece(self, data: bytes, chooser: random.Random) -> bytes:
        at = chooser.randint(0, len(data))
        return data[:at] + chooser.choice(PIECES) + data[at + chooser.randint(0, 3) :]

    def _flip(self, data: bytes, chooser: random.Random) -> bytes:
        if not data:
            return data
        at = chooser.randrange(len(data))
        return data[:at] + bytes((data[at] ^ 1 << chooser.randrange(8),)) + data[at + 1 :]

    def _line(self, data: bytes, chooser: random.Random) -> bytes:
        lines = data.split(b"\r\n")
        at, other = chooser.randrange(len(lines)), chooser.randrange(len(lines))
        match chooser.randrange(5):
            case 0:
                del lines[at]
            case 1:
                lines.insert(at, lines[other])
            case 2:
                lines[at], lines[other] = lines[other], lines[at]
            case 3:
                lines.insert(at, chooser.choice(self._lines))
            case _:
                lines[at] = chooser.choice(chooser.choice(self.corpus).split(b"\r\n"))
        return b"\r\n".join(lines)

    def _number(self, data: bytes, chooser: random.Random) -> bytes:
        found = _NUMBER.search(data, chooser.randint(0, len(data)))
        if found is None:
            return data
        return data[: found.start()] + chooser.choice(NUMBERS) + data[found.end() :]

    def _line_end(self, data: bytes, chooser: random.Random) -> bytes:
        at = data.find(b"\r\n", chooser.randint(0, len(data)))
        if at < 0:
            return data
        return data[:at] + chooser.choice((b"\n", b"\r", b"\r\r\n", b"\n\r", b" \r\n", b"\r\n\r\n")) + data[at + 2 :]

    def _case(self, data: bytes, chooser: random.Random) -> bytes:
        at = chooser.randint(0, len(data))
        end = at + chooser.randint(1, 20)
        return data[:at] + data[at:end].swapcase() + data[end:]

    def _cut(self, data: bytes, chooser: random.Random) -> bytes:
        at = chooser.randint(0, len(data))
        return data[:at] + data[at + chooser.randint(1, 40) :]

    def _repeat(self, data: bytes, chooser: random.Random) -> bytes:
        at = chooser.randint(0, len(data))
        part = data[at : at + chooser.randint(1, 60)] or b"a"
        times = LARGEST // len(part) if chooser.randrange(LONG_ONE_IN) == 0 else chooser.randint(2, 8)
        return data[:at] + part * times + data[at:]

    def _splice(self, data: bytes, chooser: random.Random) -> bytes:
        other = chooser.choice(self.corpus)
        return data[: chooser.randint(0, len(data))] + other[chooser.randint(0, len(other)) :]

    def _truncate(self, data: bytes, chooser: random.Random) -> bytes:
        return data[: chooser.randint(0, len(data))]


_MUTATIONS: tuple[Mutation, ...] = (
    Mutator._piece,
    Mutator._piece,
    Mutator._flip,
    Mutator._line,
    Mutator._line,
    Mutator._number,
    Mutator._line_end,
    Mutator._case,
    Mutator._cut,
    Mutator._repeat,
    Mutator._splice,
    Mutator._truncate,
)
