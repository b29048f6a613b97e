"""Decides which web pages may send cross-origin requests (Fetch standard, section 3.3). Does no I/O.

Browsers send a preflight request first, and show an answer to a page of another origin only if it names that origin.
Cookies are never allowed: a page sends a key of its own.
"""

from promptgroup_router.http11.http1 import Headers

ORIGIN = b"origin"
ANY = "*"
SECONDS = b"600"
"""Time for which a browser may cache the answer to a preflight."""
_METHODS = b"GET, HEAD, POST, DELETE"
_METHOD = b"access-control-request-method"
_HEADERS = b"access-control-request-headers"


class CrossOrigin:
    """The origins whose pages may send requests."""

    def __init__(self, origins: tuple[str, ...]) -> None:
        """Allow these origins, as browsers write them; `*` stands for all."""
        self._any = ANY in origins
        self._origins = frozenset(origin.lower().encode() for origin in origins)

    def answer_fields(self, fields: dict[bytes, bytes]) -> Headers:
        """Return the header fields for an answer to a request with these fields; none where it is not allowed."""
        origin = fields.get(ORIGIN, b"")
        if self._any:
            return [(b"access-control-allow-origin", b"*"), (b"access-control-expose-headers", b"*")]
        if origin.lower() not in self._origins:
            return [(b"vary", b"Origin")]
        return [
            (b"access-control-allow-origin", origin),
            (b"access-control-expose-headers", b"*"),
            (b"vary", b"Origin"),
        ]

    def preflight(self, method: bytes, fields: dict[bytes, bytes]) -> Headers | None:
        """Return further fields for the answer to a preflight; None for other requests, or from another origin."""
        if method != b"OPTIONS" or _METHOD not in fields:
            return None
        if not self._any and fields.get(ORIGIN, b"").lower() not in self._origins:
            return None
        allowed: Headers = [(b"access-control-allow-methods", _METHODS), (b"access-control-max-age", SECONDS)]
        field = fields.get(_HEADERS)
        return [*allowed, (b"access-control-allow-headers", field)] if field else allowed
