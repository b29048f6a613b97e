"""Decides which header fields a gateway is to remove from a request or an answer. Does no I/O.

`engine_headers` decides which fields pass, as in a router. Besides, the fields that the gateway itself sets or needs
stay: pseudo-header fields, those of the connection and of the message's framing, which its codec handles, the gateway's
id of the request, and the addresses of client and proxies. None of them controls a supported engine.
"""

from collections.abc import Iterable

from promptgroup_picker.extproc.messages import DESTINATION

OWN = frozenset(
    b"host content-length transfer-encoding connection keep-alive proxy-connection te trailer upgrade expect via "
    b"x-request-id x-forwarded-for x-forwarded-proto x-forwarded-host x-forwarded-port".split()
) | {DESTINATION.encode()}
"""The gateway's fields of a request or an answer. The picker overwrites DESTINATION."""
OWN_BEGINNINGS = (b":", b"x-envoy-")
"""Beginnings of further ones: Envoy does not allow changes of them, and removes those of clients."""


def to_remove(fields: Iterable[bytes], allowed: frozenset[bytes], given: Iterable[bytes] = ()) -> tuple[str, ...]:
    """Return the names of fields that are to be removed, in order.

    Args:
        fields: names of the fields that the message has, in lower case.
        allowed: names of fields that may pass.
        given: names of fields that are overwritten.
    """
    unknown = [name for name in fields if name not in allowed and name not in OWN]
    overwritten = frozenset(given)
    return tuple(
        sorted(name.decode() for name in unknown if not name.startswith(OWN_BEGINNINGS) and name not in overwritten)
    )
