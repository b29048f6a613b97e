"""Encodes and authenticates the datagrams that routers send each other. Does no I/O and reads no clock.

    magic 3 · version 1 · kind 1 · sender 8 · sequence 8 · sent 8 · placements 1 · loads 1 | loads, 36 each
        | placements, 34 each | tag 16

Datagrams with the use of callers have reports of 42 bytes in place of placements, and those with prefixes have reports
of 20 bytes; in both, the field of placements holds the number of reports.

All numbers are big-endian. The tag is a keyed BLAKE2s (RFC 7693, section 2.9) over everything before it: without the
key no datagram can be forged or changed. The time and the sequence prevent replays. Numbers too large for their
field are sent as the largest that it holds.
"""

import enum
import hmac
from collections.abc import Sequence
from hashlib import blake2s
from struct import Struct
from typing import NamedTuple

from promptgroup_router.callers.account import SpendReport
from promptgroup_router.policy.gossip import LoadReport, PlacementReport, PrefixReport

MAX_BYTES = 1200
"""Size of the largest datagram. It passes any path unfragmented, including the headers of overlay networks (RFC 9000,
section 14.1)."""
MAX_SKEW_SECONDS = 30.0
"""Most seconds that two clocks may differ. A captured datagram cannot be replayed after this time; only nodes without
NTP differ by more."""

_MAGIC = b"PGP"
_VERSION = 4
_BEGIN = _MAGIC + bytes([_VERSION])
_HEADER = Struct(">3sBBQQdBB")
_PLACEMENT = Struct(">QQQHII")
_LOAD = Struct(">QHIIIQIH")
_SPEND = Struct(">QQqIIQH")
_PREFIX = Struct(">QQI")
_TAG_BYTES = 16
_PURPOSE = b"pg-peers"

RECORDS = (MAX_BYTES - _HEADER.size - _TAG_BYTES) // _LOAD.size
"""Placements and loads that one datagram holds: loads are the larger ones."""
SPENDS = (MAX_BYTES - _HEADER.size - _TAG_BYTES) // _SPEND.size
"""Reports of callers' use that one datagram holds."""
PREFIXES = (MAX_BYTES - _HEADER.size - _TAG_BYTES) // _PREFIX.size
"""Reports of prefixes that one datagram holds."""

_U16, _U32, _U64 = 0xFFFF, 0xFFFFFFFF, 0xFFFFFFFFFFFFFFFF
_MICRO = 1e6


class DatagramKind(enum.IntEnum):
    """The purpose of a datagram."""

    HELLO = 1
    """Announces that the sender is alive."""
    TICK = 2
    """Contains new placements of the sender, and its loads."""
    ASK = 3
    """Requests a copy of all placements, because the sender has just started."""
    COPY = 4
    """Contains a part of that copy; one without placements ends it."""
    SPEND = 5
    """Contains the use that callers have made of their limits."""
    PREFIX = 6
    """Contains the prefixes of requests that were sent to replicas."""


class Refusal(enum.StrEnum):
    """The reason for which a datagram was dropped; a label of a metric."""

    MALFORMED = "malformed"
    VERSION = "version"
    FORGED = "forged"
    CLOCK = "clock"
    REPLAYED = "replayed"
    CROWD = "crowd"
    NO_KEY = "no_key"


class Datagram(NamedTuple):
    """One message of one router."""

    kind: DatagramKind
    sender: int
    """Random number of the sending process, 64 bits."""
    sequence: int
    """Number of the datagram among all that the sender has sent to any peer."""
    sent: float
    """Seconds since the epoch by the sender's clock."""
    placements: Sequence[PlacementReport] = ()
    loads: Sequence[LoadReport] = ()
    spends: Sequence[SpendReport] = ()
    """Reports of a datagram of kind SPEND, which has no placements and no loads."""
    prefixes: Sequence[PrefixReport] = ()
    """Reports of a datagram of kind PREFIX, which has no other records."""


_KINDS = {int(kind): kind for kind in DatagramKind}


def seal_key(secret: bytes) -> bytes:
    """Derive the key of the tag from a secret of any length."""
    return blake2s(secret, person=_PURPOSE).digest()


def encode(datagram: Datagram, key: bytes) -> bytes:
    """Return the bytes to send.

    Raises:
        ValueError: there are more than `RECORDS` placements and loads, more than `SPENDS` reports of use, or more than
            `PREFIXES` of prefixes.
    """
    kind, sender, sequence, sent, placements, loads, spends, _ = datagram
    if kind is DatagramKind.SPEND:
        return _encode_spends(datagram, key)
    if kind is DatagramKind.PREFIX:
        return _encode_prefixes(datagram, key)
    if spends:
        raise ValueError(f"a datagram of kind {kind.name} holds no reports of use")
    if len(placements) + len(loads) > RECORDS:
        raise ValueError(f"{len(placements)} placements and {len(loads)} loads, but a datagram holds {RECORDS}")
    parts = [_HEADER.pack(_MAGIC, _VERSION, kind, sender, sequence, sent, len(placements), len(loads))]
    for member, in_flight, context, pending, age, written, unplaced, waiting in loads:
        parts.append(
            _LOAD.pack(
                member, min(_U16, in_flight), min(_U32, context), _micros(pending), _micros(age), min(_U64, written),
                min(_U32, unplaced), min(_U16, waiting),
            )
        )  # fmt: skip
    for session, member, prefix, turn, tokens, shared in placements:
        parts.append(_PLACEMENT.pack(session, member, prefix, min(_U16, turn), min(_U32, tokens), min(_U32, shared)))
    body = b"".join(parts)
    return body + _tag(body, key)


def _encode_spends(datagram: Datagram, key: bytes) -> bytes:
    _, sender, sequence, sent, _, _, spends, _ = datagram
    if len(spends) > SPENDS:
        raise ValueError(f"{len(spends)} reports of use, but a datagram holds {SPENDS}")
    parts = [_HEADER.pack(_MAGIC, _VERSION, DatagramKind.SPEND, sender, sequence, sent, len(spends), 0)]
    for account, requests, tokens, minute_requests, minute_tokens, day_tokens, in_flight in spends:
        bounded = min(_U32, minute_requests), min(_U32, minute_tokens), min(_U64, day_tokens), min(_U16, in_flight)
        parts.append(_SPEND.pack(account, requests, tokens, *bounded))
    body = b"".join(parts)
    return body + _tag(body, key)


def _encode_prefixes(datagram: Datagram, key: bytes) -> bytes:
    _, sender, sequence, sent, _, _, _, prefixes = datagram
    if len(prefixes) > PREFIXES:
        raise ValueError(f"{len(prefixes)} reports of prefixes, but a datagram holds {PREFIXES}")
    parts = [_HEADER.pack(_MAGIC, _VERSION, DatagramKind.PREFIX, sender, sequence, sent, len(prefixes), 0)]
    parts += [_PREFIX.pack(prefix, member, min(_U32, tokens)) for prefix, member, tokens in prefixes]
    body = b"".join(parts)
    return body + _tag(body, key)


def decode(data: bytes, key: bytes, wall: float) -> Datagram | Refusal:
    """Return the received datagram, or the reason for dropping it. Never raises, whatever the bytes are.

    Args:
        data: the received bytes.
        key: the key of the tag.
        wall: seconds since the epoch.
    """
    size = len(data) - _TAG_BYTES
    if not _HEADER.size <= size <= MAX_BYTES - _TAG_BYTES or data[:3] != _MAGIC:
        return Refusal.MALFORMED
    if data[:4] != _BEGIN:
        return Refusal.VERSION
    body = data[:size]
    if not hmac.compare_digest(_tag(body, key), data[size:]):
        return Refusal.FORGED
    _, _, number, sender, sequence, sent, placements, loads = _HEADER.unpack_from(body)
    kind = _KINDS.get(number)
    middle = _HEADER.size + loads * _LOAD.size
    record = _SPEND if kind is DatagramKind.SPEND else _PREFIX if kind is DatagramKind.PREFIX else _PLACEMENT
    if kind is None or size != middle + placements * record.size or (loads and record is not _PLACEMENT):
        return Refusal.MALFORMED
    if not abs(wall - sent) <= MAX_SKEW_SECONDS:  # in this form NaN is refused too
        return Refusal.CLOCK
    if record is _SPEND:
        spends = [SpendReport._make(fields) for fields in _SPEND.iter_unpack(body[middle:])]
        return Datagram(kind, sender, sequence, sent, spends=spends)
    if record is _PREFIX:
        prefixes = [PrefixReport._make(fields) for fields in _PREFIX.iter_unpack(body[middle:])]
        return Datagram(kind, sender, sequence, sent, prefixes=prefixes)
    return Datagram(
        kind,
        sender,
        sequence,
        sent,
        [PlacementReport._make(fields) for fields in _PLACEMENT.iter_unpack(body[middle:])],
        [
            LoadReport(member, in_flight, context, pending / _MICRO, age / _MICRO, written, unplaced, waiting)
            for member, in_flight, context, pending, age, written, unplaced, waiting in _LOAD.iter_unpack(
                body[_HEADER.size : middle]
            )
        ],
    )


def _micros(seconds: float) -> int:
    return min(_U32, int(seconds * _MICRO))


def _tag(body: bytes, key: bytes) -> bytes:
    return blake2s(body, key=key, digest_size=_TAG_BYTES, person=_PURPOSE).digest()
