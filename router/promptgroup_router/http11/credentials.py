"""Finds the credentials in a request's head."""

from collections.abc import Mapping

HEADERS = frozenset((b"authorization", b"x-api-key", b"api-key", b"proxy-authorization", b"cookie"))
"""Fields that hold clients' credentials: engines get them only where the group allows it."""

AUTHORIZATION, X_API_KEY = b"authorization", b"x-api-key"
_BEARER = b"bearer "
_KEYS = (X_API_KEY, b"api-key")


def bearer(fields: Mapping[bytes, bytes]) -> bytes:
    """Return the bearer token of a request (RFC 6750 section 2.1); empty if there is none."""
    value = fields.get(AUTHORIZATION)
    if value is None:
        return b""
    if not value.startswith(b"Bearer ") and value[: len(_BEARER)].lower() != _BEARER:
        return b""
    return value[len(_BEARER) :].strip(b" ")


def api_keys(fields: Mapping[bytes, bytes]) -> list[bytes]:
    """Return the API keys of a request: OpenAI's clients send a bearer token, Anthropic's `x-api-key`, some both."""
    token = bearer(fields)
    result = [token] if token else []
    for name in _KEYS:
        key = fields.get(name)
        if key and key != token:
            result.append(key)
    return result
