"""Parses the caching directives of a client: `Cache-Control` (RFC 9111), and LiteLLM's body field `cache`."""

from collections.abc import Iterable
from typing import NamedTuple

from promptgroup_router.apis.request import wrong
from promptgroup_router.base.errors import ApiError
from promptgroup_router.routing.engine_fields import CACHE_FIELD

MAX_NAMESPACE = 256
"""Longest `cache.namespace`, in characters."""
MAX_SECONDS = 2**31
"""RFC 9111 section 1.2.2: a larger number of seconds means this one."""


class Directives(NamedTuple):
    """The caching directives of a client."""

    no_cache: bool = False
    """No cached answer may be served."""
    no_store: bool = False
    """The answer must not be cached, and no cached one is served."""
    only_if_cached: bool = False
    """The request must not be sent to an engine."""
    max_age: int | None = None
    """Greatest age of an answer that may be served, in seconds."""
    ttl: int | None = None
    """Longest time for which the answer may be cached, in seconds."""
    namespace: str = ""
    """Answers of other namespaces are not served."""


NO_DIRECTIVES = Directives()


def read_directives(headers: Iterable[tuple[bytes, bytes]], field: object) -> Directives:
    """Return the directives of a client.

    Args:
        headers: fields of the request, names in lower case.
        field: the value of the body's `cache`; None without one.

    Raises:
        ApiError: 400: a member of `cache` has an invalid value.
    """
    given: dict[str, str] = {}
    for name, value in headers:
        if name == b"cache-control":
            for part in value.decode("latin-1").lower().split(","):
                word, _, argument = part.partition("=")
                given.setdefault(word.strip(), argument.strip().strip('"'))
    if field is None and not given:
        return NO_DIRECTIVES
    directives = Directives(
        no_cache="no-cache" in given,
        no_store="no-store" in given,
        only_if_cached="only-if-cached" in given,
        max_age=_age(given["max-age"]) if "max-age" in given else None,
    )
    return directives if field is None else _with_field(directives, field)


def _age(text: str) -> int:
    # RFC 9111 section 4.2.1: an answer with invalid freshness information counts as stale
    return min(int(text), MAX_SECONDS) if text.isascii() and text.isdecimal() and len(text) <= 20 else 0


def _with_field(directives: Directives, field: object) -> Directives:
    if not isinstance(field, dict):
        raise wrong(CACHE_FIELD, CACHE_FIELD, field, 'an object such as {"ttl": 600}')
    result = (directives.max_age, _seconds(field, "s-maxage"), _seconds(field, "s-max-age"))
    namespace = field.get("namespace")
    if namespace is not None and not (isinstance(namespace, str) and len(namespace) <= MAX_NAMESPACE):
        raise wrong(f"{CACHE_FIELD}.namespace", CACHE_FIELD, namespace, f"a text of at most {MAX_NAMESPACE} characters")
    return directives._replace(
        no_cache=directives.no_cache or _flag(field, "no-cache"),
        no_store=directives.no_store or _flag(field, "no-store"),
        max_age=min((age for age in result if age is not None), default=None),
        ttl=_seconds(field, "ttl"),
        namespace=namespace or "",
    )


def _flag(field: dict[str, object], name: str) -> bool:
    value = field.get(name, False)
    if value is not None and not isinstance(value, bool):
        raise wrong(f"{CACHE_FIELD}.{name}", CACHE_FIELD, value, "true or false")
    return bool(value)


def _seconds(field: dict[str, object], name: str) -> int | None:
    value = field.get(name)
    if value is None:
        return None
    if isinstance(value, bool) or not isinstance(value, int | float) or not 0 <= value <= MAX_SECONDS:
        raise ApiError(
            400,
            f"{CACHE_FIELD}.{name} is no number of seconds from 0 to {MAX_SECONDS}: send one, or leave it out",
            param=CACHE_FIELD,
            code="invalid_value",
        )
    return int(value)
