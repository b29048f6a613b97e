"""Says in words why a server does not answer."""

from urllib3 import exceptions

_WORDS: tuple[tuple[type[Exception], str], ...] = (
    (exceptions.NameResolutionError, "its host name cannot be resolved"),
    (exceptions.NewConnectionError, "the connection was refused, or nothing listens there"),
    (exceptions.SSLError, "TLS failed, for example because the certificate is not trusted"),
    (exceptions.TimeoutError, "it did not answer in time"),
    (exceptions.ProtocolError, "it closed the connection, or does not speak HTTP"),
    (TimeoutError, "it did not answer in time"),
)
"""Kinds of errors, those that are kinds of others first."""

DEPTH = 4
"""Most errors that are looked at, each within the one before: requests wraps urllib3's, which wrap the socket's."""


def reason(error: BaseException) -> str:
    """Return why a request failed, in words that quote nothing of the error: it may hold a credential of the URL.

    Args:
        error: of urllib3 or of a socket, or one of requests that holds one of these.
    """
    inner: BaseException | None = error
    for _ in range(DEPTH):
        if inner is None:
            break
        for kind, words in _WORDS:
            if isinstance(inner, kind):
                return words
        inner = _within(inner)
    return type(error).__name__


def _within(error: BaseException) -> BaseException | None:
    """Return the error that another one wraps."""
    held = (getattr(error, "reason", None), *error.args)
    return next((item for item in held if isinstance(item, BaseException)), None)
