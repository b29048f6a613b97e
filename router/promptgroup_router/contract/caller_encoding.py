"""Encodes the rules for callers as JSON, like `encoding` the rest of a group. What has its default is not written."""

from collections.abc import Mapping
from typing import Any

from promptgroup_router.contract.caller_rules import (
    MOST_HEADERS,
    NO_LIMITS,
    NO_RULES,
    CachedTokens,
    CallerLimits,
    CallerRules,
    EngineField,
    Priority,
    is_nameable,
)
from promptgroup_router.contract.fields import count, items, mapping, member, text, texts
from promptgroup_router.contract.table import TableError

_LIMITS = {
    "requestsPerMinute": "requests_per_minute",
    "tokensPerMinute": "tokens_per_minute",
    "requestsInFlight": "in_flight",
    "tokensPerDay": "tokens_per_day",
}


def encode(rules: CallerRules) -> dict[str, Any]:
    """Return the rules as JSON; nothing where all have their defaults."""
    encoded: dict[str, Any] = {}
    if rules.allowed:
        encoded["allowedEngineFields"] = sorted(rules.allowed)
    if rules.headers:
        encoded["allowedEngineHeaders"] = sorted(rules.headers)
    if rules.salted is not None:
        encoded["salted"] = sorted(rules.salted)
    if rules.cached_tokens is not CachedTokens.EXACT:
        encoded["reportCachedTokens"] = rules.cached_tokens.value
    if rules.default != NO_LIMITS:
        encoded["default"] = _encode_limits(rules.default)
    if rules.named:
        encoded["named"] = [{"caller": name} | _encode_limits(limits) for name, limits in rules.named]
    return encoded


def _encode_limits(limits: CallerLimits) -> dict[str, Any]:
    encoded: dict[str, Any] = {key: value for key, name in _LIMITS.items() if (value := getattr(limits, name))}
    if limits.weight != 1:
        encoded["weight"] = limits.weight
    if limits.priority is not Priority.NORMAL:
        encoded["priority"] = limits.priority.value
    return encoded


def decode(item: object, at: str) -> CallerRules:
    """Return the rules of a group; the defaults for a group without any.

    Fields of engines that this version does not know stay forbidden.

    Raises:
        TableError: a field cannot be used.
    """
    if item is None:
        return NO_RULES
    data = mapping(item, at)
    known = {each.value: each for each in EngineField}
    named = [mapping(each, f"{at}.named[{i}]") for i, each in enumerate(items(data, "named", at))]
    limits = {text(each, "caller", f"{at}.named"): _decode_limits(each, f"{at}.named") for each in named}
    return CallerRules(
        allowed=frozenset(known[name] for name in texts(data, "allowedEngineFields", at) if name in known),
        headers=_decode_headers(data, at),
        salted=frozenset(texts(data, "salted", at)) if data.get("salted") is not None else None,
        cached_tokens=member(CachedTokens, data, "reportCachedTokens", at, CachedTokens.EXACT),
        default=_decode_limits(mapping(data.get("default", {}), f"{at}.default"), f"{at}.default"),
        named=tuple(sorted(limits.items(), key=lambda pair: pair[0])),
    )


def _decode_headers(data: Mapping[str, Any], at: str) -> frozenset[str]:
    names = texts(data, "allowedEngineHeaders", at)
    for name in names:
        if not is_nameable(name):
            way = "name fields in lower case that no connection, credential, router or gateway needs"
            raise TableError(f"{at}.allowedEngineHeaders has {name[:64]!r}, which no group can let pass: {way}")
    if len(names) > MOST_HEADERS:
        raise TableError(f"{at}.allowedEngineHeaders has {len(names)} names, at most {MOST_HEADERS}: name fewer")
    return frozenset(names)


def _decode_limits(data: Mapping[str, Any], at: str) -> CallerLimits:
    values = {name: count(data, key, at, 0) for key, name in _LIMITS.items()}
    priority = member(Priority, data, "priority", at, Priority.NORMAL)
    return CallerLimits(**values, weight=max(1, count(data, "weight", at, 1)), priority=priority)
