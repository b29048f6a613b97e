"""Defines which answers a purge covers, and prevents purged answers from being cached again."""

import re
from dataclasses import dataclass, field
from math import isfinite
from typing import Any

import orjson

from promptgroup_router.base.errors import ApiError
from promptgroup_router.response_cache.answer import KeptAnswer
from promptgroup_router.response_cache.canonical import KEY_BYTES, CacheKey

MOST_PURGES = 1000
"""Most purges that are recorded individually; the oldest ones beyond these are merged into a purge of all answers."""
REMEMBERED_SECONDS = 7 * 24 * 3600.0
"""Time for which a purge is recorded: the longest lifetime of an answer."""

_GROUP = re.compile(r"[a-z0-9.-]{1,253}/[a-z0-9.-]{1,253}", re.ASCII)
_REVISION = re.compile(r"[0-9a-f]{8}", re.ASCII)
_WAYS = (
    'send {"key": "64 hex digits"}, {"group": "namespace/name"}, {"group": ..., "revision": "8 hex digits"}, '
    'or {"all": true}'
)


@dataclass(frozen=True, slots=True)
class Purge:
    """The selection of answers that a purge removes: those that match all given fields."""

    key: CacheKey | None = None
    group: str = ""
    """`namespace/group`; empty for all."""
    revision: str = ""
    """Short fingerprint; empty for all."""

    def covers(self, key: CacheKey, group: str, revision: str) -> bool:
        """Return True if it selects this answer."""
        return (self.key is None or self.key == key) and self.group in ("", group) and self.revision in ("", revision)


def parse_purge(body: bytes) -> Purge:
    """Parse a request for a purge.

    Raises:
        ApiError: 400: the request does not say which answers to purge.
    """
    try:
        doc = orjson.loads(body)
    except orjson.JSONDecodeError:
        doc = None
    if not isinstance(doc, dict) or doc.keys() - {"key", "group", "revision", "all"}:
        raise _unclear()
    key, group, revision = (doc.get(name) for name in ("key", "group", "revision"))
    if doc.get("all") is True and len(doc) == 1:
        return Purge()
    if isinstance(key, str) and len(doc) == 1:
        try:
            fromhex = bytes.fromhex(key)
        except ValueError:
            fromhex = b""
        if len(fromhex) == KEY_BYTES:
            return Purge(key=CacheKey(fromhex))
    elif isinstance(group, str) and _GROUP.fullmatch(group) and len(doc) == 1:
        return Purge(group=group)
    elif (
        isinstance(group, str)
        and _GROUP.fullmatch(group)
        and isinstance(revision, str)
        and _REVISION.fullmatch(revision)
    ):
        return Purge(group=group, revision=revision)
    raise _unclear()


def _restored(doc: dict[str, Any]) -> tuple[Purge, float]:
    key, group, revision, at = (doc[name] for name in ("key", "group", "revision", "at"))
    if not isinstance(group, str) or not isinstance(revision, str) or not isfinite(at):
        raise ValueError("a field has another type")
    return Purge(CacheKey(bytes.fromhex(key)) if key else None, group, revision), at


def _unclear() -> ApiError:
    return ApiError(400, f"the body does not say which answers to purge: {_WAYS}", code="invalid_value")


@dataclass(slots=True)
class Purges:
    """The recorded purges: an answer that was requested before a purge that covers it is neither cached nor served."""

    _made: dict[Purge, float] = field(default_factory=dict)
    """Purge → when it was made, in seconds since the epoch; the oldest first."""

    def add(self, purge: Purge, now: float) -> None:
        """Record a purge."""
        self._made = {item: at for item, at in self._made.items() if now - at < REMEMBERED_SECONDS and item != purge}
        self._made[purge] = now
        while len(self._made) > MOST_PURGES:
            # a merged purge covers too much rather than too little
            everything = self._made.pop(Purge(), 0.0)
            at = self._made.pop(next(iter(self._made)))
            self._made = {Purge(): max(at, everything), **self._made}

    def encode(self) -> bytes:
        """Return the purges in JSON, for a restart."""
        return orjson.dumps(
            [
                {
                    "key": purge.key.hex() if purge.key is not None else "",
                    "group": purge.group,
                    "revision": purge.revision,
                }
                | {"at": at}
                for purge, at in self._made.items()
            ]
        )

    def restore(self, data: bytes, now: float) -> None:
        """Add the purges that an earlier process has made.

        Args:
            data: what `encode` returned.
            now: seconds since the epoch; a later time of a purge counts as this one.

        Raises:
            ValueError: the data is no list of purges; none is added.
        """
        try:
            restoreds = [_restored(load) for load in orjson.loads(data)[:MOST_PURGES]]
        except (ValueError, KeyError, TypeError, OverflowError):
            raise ValueError("it is no list of purges") from None
        for purge, at in restoreds:
            self.add(purge, max(min(at, now), self._made.get(purge, 0.0)))

    def forbid(self, key: CacheKey, group: str, revision: str, began: float) -> bool:
        """Return True if a purge covers an answer that began at this time, in seconds since the epoch."""
        return any(at >= began and purge.covers(key, group, revision) for purge, at in self._made.items())

    def forbid_kept(self, kept_answer: KeptAnswer) -> bool:
        """Return True if a purge covers a cached answer."""
        return bool(self._made) and self.forbid(
            kept_answer.key, kept_answer.group, kept_answer.revision, kept_answer.born
        )
