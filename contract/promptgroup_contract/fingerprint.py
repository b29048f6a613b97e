"""Computes the identity of a Tier-1 prefix from the bytes of its tools, its system text and its messages.

A fingerprint covers nothing else: not the model, not the chat template, not the conversation of a client.
`tests/golden/fingerprints.json` holds test vectors for other implementations.

    fingerprint = hex(SHA-256(tools ‖ 0x00 ‖ system [‖ 0xFF ‖ messages] [‖ 0xFE ‖ adapter]))[:32]

`system` is the text in UTF-8, byte for byte. `tools` is the canonical form of the tool list, or nothing when there are
none: JSON without blanks, object keys sorted by code point, array order preserved, whole numbers below 10^21 without a
fraction or an exponent, and larger ones as doubles are written (`1e+21`), both as ECMAScript and Go do. Whole numbers
of more than 64 bits are doubles. Keys are sorted because a Kubernetes API server returns the keys of a free-form object
in sorted order, whatever order was applied (and `1.0` as `1`), and because serialisers differ in it. The router
sends the same canonical form to the engine, so that the order in a client's body does not break the cache. The hash is
SHA-256 because the prompts of two teams may meet in one table: with a fast hash, somebody could construct a collision
to catch another team's requests.

`messages` are the declared messages in canonical form, as the module `messages` writes it. A prefix without messages
has no 0xFF either. That byte occurs in no text in UTF-8, so no system text can end like messages.

`adapter` is the identity of a LoRA adapter, in the form that the operator writes: engines keep the KV of an adapter
apart, so that a prefix with another adapter is another prefix. 0xFE occurs in no text in UTF-8 either.
"""

import hashlib
import json
from collections.abc import Iterable, Iterator, Sequence
from typing import NewType

Fingerprint = NewType("Fingerprint", str)
"""The identity of a Tier-1 prefix: 32 lower-case hex digits. It is made here, and where one is read that another
program made."""
ShortFingerprint = NewType("ShortFingerprint", str)
"""The first digits of a fingerprint, by which objects, metrics and people name a revision."""

FINGERPRINT_LENGTH = 32
"""Hex digits of a fingerprint: 128 bits."""

WHOLE_LIMIT = 1e21
"""From here on a double is written with its exponent: written out, `1e308` would have 309 digits, most of them invented
by the conversion."""

SHORT_LENGTH = 8
"""Hex digits of a fingerprint in the names of a revision's objects."""


def canonical_tools(tools: Sequence[object] | None) -> str:
    """Return the canonical form of a tool list: compact JSON with sorted keys; the empty string for no tools.

    Raises:
        ValueError: the list holds something that JSON cannot express (NaN, an unknown type), or a number
            beyond the range of a double.
    """
    if not tools:
        return ""
    try:
        return json.dumps(_plain(tools), sort_keys=True, separators=(",", ":"), ensure_ascii=False, allow_nan=False)
    except TypeError as error:
        raise ValueError(f"tools are not JSON: {error}") from error


def _plain(value: object) -> object:
    if isinstance(value, dict):
        return {key: _plain(item) for key, item in value.items()}
    if isinstance(value, list | tuple):
        return [_plain(item) for item in value]
    if isinstance(value, int) and not -(2**63) <= value < 2**64:
        # many parsers read such a number as a double, Go's and orjson's among them
        try:
            value = float(value)
        except OverflowError as error:
            raise ValueError("tools are not JSON that can be read: a number is beyond the range of a double") from error
    if isinstance(value, float) and abs(value) < WHOLE_LIMIT and value.is_integer():
        return int(value)
    return value


def fingerprint(system: str, tools: Sequence[object] | None = None) -> Fingerprint:
    """Return the fingerprint of a system text and its tools: 32 lower-case hex digits."""
    return hash_prefix(canonical_tools(tools), system.encode())


def hash_prefix(tools: str, system: bytes, messages: str = "", adapter: str = "") -> Fingerprint:
    """Return the fingerprint of tools in canonical form, the bytes of a system text, and messages in canonical form.

    `adapter` is the identity of a LoRA adapter; empty without one.
    """
    (digest,) = _digests(tools, system, (messages,))
    if adapter:
        digest.update(b"\xfe")
        digest.update(adapter.encode())
    return Fingerprint(digest.hexdigest()[:FINGERPRINT_LENGTH])


def hashes_with_messages(tools: str, system: bytes, starts: Iterable[str]) -> Iterator[Fingerprint]:
    """Yield the fingerprint with each of several lists of messages in canonical form, hashing the rest once."""
    for digest in _digests(tools, system, starts):
        yield Fingerprint(digest.hexdigest()[:FINGERPRINT_LENGTH])


def _digests(tools: str, system: bytes, starts: Iterable[str]) -> "Iterator[hashlib._Hash]":
    digest = hashlib.sha256(tools.encode())
    digest.update(b"\0")
    digest.update(system)
    for messages in starts:
        whole = digest.copy()
        if messages:
            whole.update(b"\xff")
            whole.update(messages.encode())
        yield whole


def short(full: Fingerprint) -> ShortFingerprint:
    """Return the part of a fingerprint that names objects: `<group>-<short>`."""
    return ShortFingerprint(full[:SHORT_LENGTH])


def prefix_hashes(tools: str, system: bytes, lengths: Iterable[int]) -> Iterator[tuple[int, Fingerprint]]:
    """Yield (length, fingerprint) of the prefixes of a system text, hashing it once.

    Args:
        tools: in canonical form.
        system: the system text in UTF-8.
        lengths: in increasing order; those beyond the text are left out.
    """
    digest = hashlib.sha256(tools.encode())
    digest.update(b"\0")
    at = 0
    view = memoryview(system)
    for length in lengths:
        if length > len(system):
            return
        digest.update(view[at:length])
        at = length
        yield length, Fingerprint(digest.copy().hexdigest()[:FINGERPRINT_LENGTH])
