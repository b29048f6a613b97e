"""Decodes the content codings of request bodies (RFC 9110 section 8.4.1), with a limit on the size of the result.

A few bytes may decode to more than a router's memory, so that nothing is decoded beyond the limit: a compressed body
takes no more work and memory than one that was sent uncompressed. Does no I/O.
"""

import sys
import zlib
from collections.abc import Callable
from typing import Any

from promptgroup_router.base.errors import ApiError, shown

if sys.version_info >= (3, 14):
    from compression import zstd
else:
    from backports import zstd

ACCEPTED = b"gzip, deflate, zstd"
"""The accepted codings, as the value of a header field."""
MOST_MEMBERS = 100
"""Most gzip members or zstd frames of a body: each takes time of its own, however little it holds."""
WINDOW_LOG = 23
"""Largest window of zstd, 8 MiB, which every decoder should support (RFC 8878 section 3.1.1.1.2)."""

_HEADER = b"content-encoding"
_NAMES = {"x-gzip": "gzip", "identity": ""}
_BY_NAME: dict[str, Callable[[bytes], Any]] = {
    "gzip": lambda _: zlib.decompressobj(wbits=31),
    # the standard requires zlib's envelope, which some clients omit
    "deflate": lambda data: zlib.decompressobj(wbits=15 if _is_zlib(data) else -15),
    "zstd": lambda _: zstd.ZstdDecompressor(options={zstd.DecompressionParameter.window_log_max: WINDOW_LOG}),
}


def coding_of(headers: dict[bytes, bytes]) -> str:
    """Return the coding of a body by the header fields of its request; empty for none.

    Raises:
        ApiError: 415: the coding is not supported, or there are several (RFC 9110 section 15.5.16).
    """
    text = headers.get(_HEADER, b"").decode("latin-1")
    name = text.strip().lower()
    name = _NAMES.get(name, name)
    if name and name not in _BY_NAME:
        raise ApiError(
            415,
            f"content-encoding is {shown(text)}: use one of {ACCEPTED.decode()}, or send the body uncompressed",
            param="content-encoding",
            code="coded_body",
            further=[(b"accept-encoding", ACCEPTED)],
        )
    return name


def decoded(coding: str, body: bytes | bytearray, most: int) -> bytes | None:
    """Return the decoded body; None if it has more than `most` bytes.

    Args:
        coding: the coding, as `coding_of` returns it.
        body: the body as received.
        most: most bytes of the result.

    Raises:
        ApiError: 400: the body does not have this coding, or is incomplete.
    """
    rest, parts, size = bytes(body), [], 0
    try:
        for _ in range(MOST_MEMBERS):
            decoder = _BY_NAME[coding](rest)
            part = _part(decoder, rest, most - size + 1)
            size += len(part)
            if size > most:
                return None
            parts.append(part)
            if not decoder.eof:
                raise _malformed(coding, "it is not whole")
            rest = decoder.unused_data
            if not rest:
                return parts[0] if len(parts) == 1 else b"".join(parts)
    except (zlib.error, zstd.ZstdError) as error:
        raise _malformed(coding, "it cannot be decoded") from error
    raise _malformed(coding, f"it has more than {MOST_MEMBERS} parts")


def too_large(most: int) -> ApiError:
    """Return the refusal of a body that decodes to more than `most` bytes."""
    return ApiError(413, f"the body decodes to more than {most} bytes: shorten the conversation", code="bad_request")


def _part(decoder: Any, data: bytes, most: int) -> bytes:
    """Return the decoded data of a member, at most `most` bytes."""
    decompress = decoder.decompress(data, most)
    while not decoder.eof and len(decompress) < most:
        more = decoder.decompress(getattr(decoder, "unconsumed_tail", b""), most - len(decompress))
        if not more:
            break
        decompress += more
    return bytes(decompress)


def _is_zlib(data: bytes) -> bool:
    """Return True if data begins as RFC 1950 says."""
    return len(data) > 1 and data[0] & 15 == 8 and int.from_bytes(data[:2]) % 31 == 0


def _malformed(coding: str, why: str) -> ApiError:
    text = f"content-encoding is {coding}, and the body is not that, {why}: send it whole, or uncompressed"
    return ApiError(400, text, param="content-encoding", code="coded_body")
