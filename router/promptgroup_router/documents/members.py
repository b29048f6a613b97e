"""Reads one member of a JSON document in passing, at its place, without parsing the rest.

An answer repeats what its client has written: metadata, instructions, tools. So a name that is looked for in the bytes
may be the client's own; it counts only as a member of the document itself, or of a member that is named. The text of a
document may come in any parts. It takes linear time: strings, and what stands deeper, are skipped by patterns that
never go back.
"""

import re
from functools import lru_cache

import orjson

MOST_NAME = 256
"""Most bytes of a string that are stored: names of members, and ids."""

_STRING = re.compile(rb'[^"\\]*+(?:\\.[^"\\]*+)*+', re.DOTALL)
"""Matches the rest of a string, up to its quote."""
_FLAT = rb'[^"\\{}\[\]]++|"[^"\\]*+(?:\\.[^"\\]*+)*+"'
_DEEPER = re.compile(rb"(?:%b|[\[{](?:%b)*+[\]}])*+" % (_FLAT, _FLAT), re.DOTALL)
"""Matches all up to the next bracket of an object or list that has others within, where no member counts."""
_OPENING = re.compile(rb"[\[{]++")
_PLAIN = re.compile(rb'[^"\\{}\[\]:,]*+')
"""Matches all up to the next token, where members count."""
_OTHERS = (
    rb'(?:[ \t\r\n,]*+(?!"(?:%b|%b)")"[^"\\]*+"[ \t\r\n]*+:[ \t\r\n]*+'
    rb'(?:"[^"\\]*+(?:\\.[^"\\]*+)*+"|[^"\\{}\[\],: \t\r\n]++)[ \t\r\n]*+,)*+'
)
"""Matches members of other names that are neither objects nor lists, each with the comma behind it."""
_BLANK = re.compile(rb"[ \t\r\n]*+")
MOST_DEPTH = 1024
"""Deepest nesting of a document; orjson takes none that is deeper, and routers no request that could lead to one."""
_QUOTE, _ESCAPE, _COLON, _COMMA, _BRACE = ord('"'), ord("\\"), ord(":"), ord(","), ord("{")
_OPENS, _CLOSES = b"{[", b"}]"

NOWHERE = -1
FAR = 1024
"""Bytes without a quote from which on brackets are counted, which is faster than to step from one to the next."""


class MemberReader:
    """A document, as far as it has come, and the last member of a name in it: an object, or a short string."""

    __slots__ = (
        "_copied", "_depth", "_escaped", "_fresh", "_from", "_inside", "_most", "_name", "_named", "_object", "_others",
        "_passed", "_quoted", "_text", "_under", "_wanted", "begin", "value",
    )  # fmt: skip

    def __init__(self, name: bytes, under: bytes = b"", most: int = 65_536) -> None:
        """Begin a document.

        Args:
            name: the name of the member.
            under: the member of the document that has it; empty for the document itself.
            most: most bytes of its value; a longer value is ignored.
        """
        self._named, self._under, self._most = name, under, most
        self._others = _others(name, under or name)
        self.value = b""
        """The member's text in JSON; empty if there is none, or if it is neither an object nor a short string."""
        self.begin = NOWHERE
        """Bytes of the document before the value, if it is an object that has begun; else NOWHERE."""
        self._passed = 0
        """Bytes of the parts before this one."""
        self._depth = 0
        self._object = False
        """True if the document is an object."""
        self._inside = not under
        """True where members count: in the document, or in the member `under`."""
        self._fresh = False
        """True at the beginning of a member, where members count."""
        self._quoted = self._escaped = False
        """True within a string, and behind a backslash there."""
        self._text = b""
        """The last string where members count, as far as it is stored."""
        self._name = b""
        """The name of the member that the document, or `under`, is at."""
        self._wanted = False
        """True between the name of the member and its value."""
        self._from = NOWHERE
        """Place in this part at which the value begins that is being copied."""
        self._copied = b""
        """The bytes of it that earlier parts have."""

    def feed(self, data: bytes) -> None:
        """Add a part of the document."""
        at, end, quote = 0, len(data), NOWHERE
        if self._depth > MOST_DEPTH:
            return
        if self._escaped and end:
            at, self._escaped = 1, False
            self._keep_text(data, 0, 1)
        while at < end:
            if self._quoted:
                at = self._string(data, at)
            elif self._counts():
                at = self._token(data, at)
            elif not self._depth:
                at = self._outside(data, at)
            else:
                if quote < at and (quote := data.find(b'"', at)) < 0:
                    quote = end
                at = self._pass_deeper(data, at, quote)
        if self._from != NOWHERE:
            self._keep(data, end)
            if self._from != NOWHERE:
                self._from = 0
        self._passed += end

    def _pass_deeper(self, data: bytes, at: int, quote: int) -> int:
        """Pass what stands deeper than members count, up to the next string or over the next bracket."""
        if quote - at > FAR and self._stays_below(data, at, quote):
            return quote
        stop = self._bracket(data, _DEEPER.match(data, at).end())  # type: ignore[union-attr] # it always does
        if self._depth <= MOST_DEPTH:
            return stop
        self.value, self._copied, self.begin, self._from = b"", b"", NOWHERE, NOWHERE
        return len(data)

    def _stays_below(self, data: bytes, at: int, stop: int) -> bool:
        """Pass a part without strings, such as an embedding, unless its brackets may lead to where members count."""
        closed = data.count(b"]", at, stop) + data.count(b"}", at, stop)
        if self._depth - closed <= (2 if self._under else 1):
            return False
        self._depth += data.count(b"[", at, stop) + data.count(b"{", at, stop) - closed
        return True

    def _counts(self) -> bool:
        """Return True where names are looked at: in the document, and within `under`."""
        return self._object and (self._depth == 1 or (self._depth == 2 and self._inside and self._under != b""))

    def _outside(self, data: bytes, at: int) -> int:
        """Begin the document. What is none has no members, and nothing follows one."""
        at = _BLANK.match(data, at).end()  # type: ignore[union-attr]
        if at < len(data) and not self._object and data[at] == _BRACE:
            self._depth, self._object, self._fresh = 1, True, True
            return at + 1
        if at < len(data) and not self._object:
            self._depth = 1  # not an object: all that follows is deeper than the document
        return len(data) if self._object else at + 1

    def _string(self, data: bytes, at: int) -> int:
        """Pass the rest of a string."""
        stop = _STRING.match(data, at).end()  # type: ignore[union-attr]
        end = len(data)
        if stop < end and data[stop] == _ESCAPE:  # the last byte
            self._escaped = True
            stop = end
        self._keep_text(data, at, stop)
        if stop == end:
            return end
        self._quoted = False
        if self._wanted and self._counts():
            self._wanted = False
            if len(self._text) <= MOST_NAME:
                self.value = b'"%b"' % self._text
        return stop + 1

    def _keep_text(self, data: bytes, at: int, stop: int) -> None:
        if self._counts() and len(self._text) <= MOST_NAME:
            self._text += data[at : min(stop, at + MOST_NAME + 1)]

    def _token(self, data: bytes, at: int) -> int:
        """Pass a token where members count."""
        if self._fresh:
            self._fresh = False
            at = self._others.match(data, at).end()  # type: ignore[union-attr]
        at = _PLAIN.match(data, at).end()  # type: ignore[union-attr]
        if at >= len(data):
            return at
        token = data[at]
        if token == _QUOTE:
            self._quoted, self._text = True, b""
        elif token == _COLON:
            self._member(_unescaped(self._text))
        elif token == _COMMA:
            self._name, self._wanted, self._fresh = b"", False, True
        else:
            return self._bracket(data, at)
        return at + 1

    def _member(self, name: bytes) -> None:
        """Begin a member: of several with one name the last one counts."""
        self._wanted = name == self._named and self._inside and self._depth == (2 if self._under else 1)
        if self._depth == 1:
            self._name = name
        if self._wanted or (self._depth == 1 and self._under and name == self._under):
            self.value, self.begin = b"", NOWHERE

    def _bracket(self, data: bytes, at: int) -> int:
        """Pass a bracket, the quote of a string that does not end in this part, or what no document has."""
        if at >= len(data):
            return at
        token = data[at]
        if token == _QUOTE:
            self._quoted = True
        elif token in _OPENS:
            if self._wanted and token == _BRACE:
                self._from, self._copied, self.begin = at, b"", self._passed + at
            self._wanted = False
            if self._under and self._depth == 1 and self._object:
                self._inside = token == _BRACE and self._name == self._under
                self._fresh = self._inside
            if self._counts():
                self._depth += 1
                return at + 1
            stop = _OPENING.match(data, at).end()  # type: ignore[union-attr]
            self._depth += stop - at
            return stop
        elif token in _CLOSES:
            self._close(data, at)
        return at + 1

    def _close(self, data: bytes, at: int) -> None:
        self._depth = max(0, self._depth - 1)
        level = 2 if self._under else 1
        if self._from != NOWHERE and self._depth == level:
            self._keep(data, at + 1)
            if self._from != NOWHERE:
                self.value, self._copied, self._from = self._copied, b"", NOWHERE
        if self._depth < 2 and self._under:
            self._inside = False
        self._wanted = False

    def _keep(self, data: bytes, end: int) -> None:
        """Keep what this part has of the value, unless it is too long."""
        if len(self._copied) + end - self._from > self._most:
            self._from, self._copied = NOWHERE, b""
        else:
            self._copied += data[self._from : end]


@lru_cache(16)
def _others(name: bytes, under: bytes) -> re.Pattern[bytes]:
    """Return the pattern of the members that have neither name."""
    return re.compile(_OTHERS % (re.escape(name), re.escape(under)), re.DOTALL)


def _unescaped(name: bytes) -> bytes:
    """Return the name that a string spells; empty for one that spells none."""
    if b"\\" not in name:
        return name
    try:
        return str(orjson.loads(b'"%b"' % name)).encode()
    except (ValueError, UnicodeEncodeError):
        return b""
