"""Documents of JSON that are small to send and dear to read, of any size."""

from collections.abc import Callable

_CHAT = b'{"model":"m","messages":[{"role":"user","content":"hi"}],"tools":['


def _filled(begin: bytes, part: bytes, end: bytes) -> Callable[[int], bytes]:
    return lambda size: begin + part * ((size - len(begin) - len(end)) // len(part)) + end


DOCUMENTS: dict[str, Callable[[int], bytes]] = {
    "lists in lists": lambda size: b"[" * (size // 2) + b"]" * (size // 2),
    "objects in objects": lambda size: b'{"a":' * (size // 6) + b"1" + b"}" * (size // 6),
    "lists in lists that never end": lambda size: b"[" * size,
    "empty lists": _filled(b"[", b"[],", b"0]"),
    "empty objects": _filled(b"[", b"{},", b"0]"),
    "empty texts": _filled(b"[", b'"",', b"0]"),
    "numbers": _filled(b"[", b"1,", b"0]"),
    "numbers that no integer holds": _filled(b"[", b"1e308,", b"0]"),
    "a number without end": lambda size: b"9" * size,
    "a text": lambda size: b'"' + b"a" * (size - 2) + b'"',
    "a text of escapes": _filled(b'"', b"\\u0041", b'"'),
    "a text of backslashes": _filled(b'"', b"\\\\", b'"'),
    "a text of emoji": _filled(b'"', "\U0001f600".encode(), b'"'),
    "a text without end": lambda size: b'"' + b"a" * (size - 1),
    "one name again and again": _filled(b"{", b'"a":1,', b'"a":1}'),
    "spaces": lambda size: b" " * size,
    "names that differ": lambda size: b"{" + b",".join(b'"%x":1' % number for number in range(size // 9)) + b"}",
    "tools that are numbers": _filled(_CHAT, b"1e308,", b"1]}"),
    "tools that are empty": _filled(_CHAT, b"{},", b"{}]}"),
    "messages without content": _filled(b'{"model":"m","messages":[', b'{"role":"user"},', b'{"role":"user"}]}'),
    "messages of parts": _filled(
        b'{"model":"m","messages":[{"role":"user","content":[', b'{"type":"text","text":"a"},', b"{}]}]}"
    ),
    "revisions that are empty": _filled(b'{"format":1,"revisions":[', b"{},", b"{}]}"),
    "groups that are empty": _filled(b'{"format":1,"groups":[', b"{},", b"{}]}"),
    "usages": _filled(b'{"a":[', b'{"usage":{"input_tokens":1}},', b"{}]}"),
    "half a usage": _filled(b'{"usage":', b'"input_tokens":  ', b"1}"),
}
"""Shape → a document of about so many bytes, as JSON or nearly."""
