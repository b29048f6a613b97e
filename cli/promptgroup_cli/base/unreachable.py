"""Says in words why a server does not answer."""

from urllib3 import exceptions

_WORDS: tuple[tuple[type[Exception], str], ...] = (
    (exceptions.NameResolutionError, "the name of its host leads nowhere"),
    (exceptions.NewConnectionError, "nothing there takes the connection"),
    (exceptions.SSLError, "TLS fails, as it does for a certificate that nobody here trusts"),
    (exceptions.TimeoutError, "it takes too long"),
    (exceptions.ProtocolError, "it closes the connection, or speaks no HTTP"),
    (TimeoutError, "it takes too long"),
)
"""Kinds of errors, those that are kinds of others first."""


def reason(error: Exception) -> str:
    """Return why a request failed, in words that quote nothing of the error: it may hold a credential of the URL."""
    return next((words for kind, words in _WORDS if isinstance(error, kind)), type(error).__name__)
