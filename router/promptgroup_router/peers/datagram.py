"""What goes over the wire between routers: one datagram, packed and sealed. Pure.

    magic 3 · version 1 · kind 1 · sender 8 · sequence 8 · sent 8 · notes 1 · loads 1 | loads, notes, 30 each | tag 16

All numbers are big-endian. The tag is BLAKE2s, keyed (RFC 7693, section 2.9), over all that stands before it: whoever
has no key can neither speak nor change a word. The time and the sequence keep recorded datagrams from being played
again. Numbers too large for their field are sent as the largest that it holds.
"""

import enum
import hmac
from collections.abc import Sequence
from hashlib import blake2s
from struct import Struct
from typing import NamedTuple

from promptgroup_router.policy.gossip import LoadReport, PlacementReport

MAX_BYTES = 1200
"""Largest datagram: passes any path unfragmented, overlay networks' headers included (RFC 9000, section 14.1)."""
MAX_SKEW_SECONDS = 30.0
"""How far two clocks may differ. A recorded datagram is worthless after it, and nodes without NTP are further off."""

_MAGIC = b"PGP"
_VERSION = 1
_PREFIX = _MAGIC + bytes([_VERSION])
_HEADER = Struct(">3sBBQQdBB")
_NOTE = Struct(">QQQHI")
_LOAD = Struct(">QHIIIQ")
_TAG_BYTES = 16
_PURPOSE = b"pg-peers"

RECORDS = (MAX_BYTES - _HEADER.size - _TAG_BYTES) // _NOTE.size
"""Notes and loads, taken together, that one datagram holds: both have 30 bytes."""

_U16, _U32, _U64 = 0xFFFF, 0xFFFFFFFF, 0xFFFFFFFFFFFFFFFF
_MICRO = 1e6


class DatagramKind(enum.IntEnum):
    """What a datagram is for."""

    HELLO = 1
    """The sender is there."""
    TICK = 2
    """What the sender did since its last one."""
    ASK = 3
    """The sender has just started: it wants a copy of all records."""
    COPY = 4
    """A part of that copy; one without notes ends it."""


class Refusal(enum.StrEnum):
    """Why a datagram was dropped; a label of a metric."""

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
    """Random, 64 bits, of the sending process."""
    sequence: int
    """Counts the sender's datagrams, whoever they go to."""
    sent: float
    """Seconds since the epoch by the sender's clock."""
    notes: Sequence[PlacementReport] = ()
    loads: Sequence[LoadReport] = ()


_KINDS = {int(kind): kind for kind in DatagramKind}


def seal_key(secret: bytes) -> bytes:
    """The key of the tag, from a secret of any length."""
    return blake2s(secret, person=_PURPOSE).digest()


def encode(datagram: Datagram, key: bytes) -> bytes:
    """Bytes to send; at most `RECORDS` notes and loads fit.

    Raises:
        ValueError: there are more.
    """
    kind, sender, sequence, sent, notes, loads = datagram
    if len(notes) + len(loads) > RECORDS:
        raise ValueError(f"{len(notes)} notes and {len(loads)} loads, a datagram holds {RECORDS}")
    parts = [_HEADER.pack(_MAGIC, _VERSION, kind, sender, sequence, sent, len(notes), len(loads))]
    for member, in_flight, context, pending, age, written in loads:
        micros, age_micros = min(_U32, int(pending * _MICRO)), min(_U32, int(age * _MICRO))
        parts.append(
            _LOAD.pack(member, min(_U16, in_flight), min(_U32, context), micros, age_micros, min(_U64, written))
        )
    for session, member, prefix, turn, tokens in notes:
        parts.append(_NOTE.pack(session, member, prefix, min(_U16, turn), min(_U32, tokens)))
    body = b"".join(parts)
    return body + _tag(body, key)


def decode(data: bytes, key: bytes, wall: float) -> Datagram | Refusal:
    """What was received; `wall` in seconds since the epoch. Never raises, whatever the bytes are."""
    size = len(data) - _TAG_BYTES
    if not _HEADER.size <= size <= MAX_BYTES - _TAG_BYTES or data[:3] != _MAGIC:
        return Refusal.MALFORMED
    if data[:4] != _PREFIX:
        return Refusal.VERSION
    body = data[:size]
    if not hmac.compare_digest(_tag(body, key), data[size:]):
        return Refusal.FORGED
    _, _, number, sender, sequence, sent, notes, loads = _HEADER.unpack_from(body)
    kind = _KINDS.get(number)
    middle = _HEADER.size + loads * _LOAD.size
    if kind is None or size != middle + notes * _NOTE.size:
        return Refusal.MALFORMED
    if not abs(wall - sent) <= MAX_SKEW_SECONDS:  # so written, NaN is refused too
        return Refusal.CLOCK
    return Datagram(
        kind,
        sender,
        sequence,
        sent,
        [PlacementReport._make(fields) for fields in _NOTE.iter_unpack(body[middle:])],
        [
            LoadReport(member, in_flight, context, pending / _MICRO, age / _MICRO, written)
            for member, in_flight, context, pending, age, written in _LOAD.iter_unpack(body[_HEADER.size : middle])
        ],
    )


def _tag(body: bytes, key: bytes) -> bytes:
    return blake2s(body, key=key, digest_size=_TAG_BYTES, person=_PURPOSE).digest()
