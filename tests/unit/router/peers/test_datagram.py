import math
from hashlib import blake2s

import pytest

from promptgroup_router.callers.account import SpendReport
from promptgroup_router.peers.datagram import (
    _HEADER,
    _PURPOSE,
    MAX_BYTES,
    MAX_SKEW_SECONDS,
    PREFIXES,
    RECORDS,
    SPENDS,
    Datagram,
    DatagramKind,
    Refusal,
    decode,
    encode,
)
from promptgroup_router.policy.gossip import LoadReport, PrefixReport
from support.peers import KEY, load, placement

HELLO = Datagram(DatagramKind.HELLO, sender=1, sequence=2, sent=1000.0)


def sealed(*header: object, body: bytes = b"") -> bytes:
    """A header that no router would send, with the right tag."""
    data = _HEADER.pack(*header) + body
    return data + blake2s(data, key=KEY, digest_size=16, person=_PURPOSE).digest()


def test_a_full_datagram_is_as_large_as_may_be():
    data = encode(HELLO._replace(kind=DatagramKind.TICK, loads=[load(each) for each in range(RECORDS)]), KEY)
    assert MAX_BYTES - 36 < len(data) <= MAX_BYTES
    with pytest.raises(ValueError, match=f"{RECORDS} placements and 1 loads"):
        encode(HELLO._replace(placements=[placement(each) for each in range(RECORDS)], loads=[load(1)]), KEY)


def test_a_note_has_34_bytes_and_a_load_36():
    bare = len(encode(HELLO, KEY))
    assert bare == 47
    assert len(encode(HELLO._replace(placements=[placement(1)]), KEY)) - bare == 34
    assert len(encode(HELLO._replace(loads=[load(1)]), KEY)) - bare == 36


def test_the_bytes_are_those_of_version_4():
    data = encode(Datagram(DatagramKind.TICK, 1, 2, 1000.5, [placement(3)], [load(4, written=5)]), KEY)
    assert (
        data.hex()
        == (
            "504750040200000000000000010000000000000002408f4400000000000101"
            "00000000000000040002000017700003d0900007a1200000000000000005000003e80001"
            "000000000000000300000000000000010000000000000002000100000bb8000007d0"
        )
        + data[-16:].hex()
    )
    assert data[-16:] == blake2s(data[:-16], key=KEY, digest_size=16, person=b"pg-peers").digest()


def test_numbers_that_do_not_fit_are_sent_as_the_largest_that_does():
    huge = LoadReport(1, in_flight=70_000, context=2**40, pending=1e9, age=1e9, written=2**70, unplaced=2**40)._replace(
        waiting=70_000
    )
    data = encode(HELLO._replace(placements=[placement(1, turn=70_000, tokens=2**40, shared=2**40)], loads=[huge]), KEY)
    found = decode(data, KEY, 1000.0)
    most = 2**32 - 1
    assert found.loads == [LoadReport(1, 65535, most, most / 1e6, most / 1e6, 2**64 - 1, most, 65535)]
    assert found.placements[0][-3:] == (65535, 2**32 - 1, 2**32 - 1)


@pytest.mark.parametrize(
    ("data", "refusal"),
    [
        (b"", Refusal.MALFORMED),
        (b"PGP\x03", Refusal.MALFORMED),
        (b"GET / HTTP/1.1\r\nHost: some-other-service.example.org\r\n", Refusal.MALFORMED),
        (sealed(b"PGP", 1, 1, 1, 1, 1000.0, 0, 0), Refusal.VERSION),
        (sealed(b"PGP", 4, 9, 1, 1, 1000.0, 0, 0), Refusal.MALFORMED),
        (sealed(b"PGP", 4, 2, 1, 1, 1000.0, 1, 0), Refusal.MALFORMED),
        (sealed(b"PGP", 4, 2, 1, 1, 1000.0, 0, 0, body=bytes(34)), Refusal.MALFORMED),
        (sealed(b"PGP", 4, 2, 1, 1, 1000.0, 1, 0, body=bytes(33)), Refusal.MALFORMED),
        (sealed(b"PGP", 4, 2, 1, 1, 1000.0, 40, 0, body=bytes(40 * 34)), Refusal.MALFORMED),
        (sealed(b"PGP", 4, 1, 1, 1, math.nan, 0, 0), Refusal.CLOCK),
        (sealed(b"PGP", 4, 1, 1, 1, math.inf, 0, 0), Refusal.CLOCK),
        (encode(HELLO, bytes(32)), Refusal.FORGED),
    ],
)
def test_what_no_router_sends_is_refused_with_its_reason(data, refusal):
    assert decode(data, KEY, 1000.0) is refusal


@pytest.mark.parametrize("way", [-1, 1])
def test_clocks_may_differ_but_not_by_much(way):
    data = encode(HELLO, KEY)
    assert decode(data, KEY, 1000.0 + way * MAX_SKEW_SECONDS) == HELLO._replace(placements=[], loads=[])
    assert decode(data, KEY, 1000.0 + way * (MAX_SKEW_SECONDS + 0.1)) is Refusal.CLOCK


SPEND = SpendReport(7, 100, -5, 60, 5000, 10**12, 3)


def test_reports_of_use_come_back_and_a_full_datagram_is_as_large_as_may_be():
    data = encode(HELLO._replace(kind=DatagramKind.SPEND, spends=[SPEND] * SPENDS), KEY)
    assert MAX_BYTES - 42 < len(data) <= MAX_BYTES
    found = decode(data, KEY, 1000.0)
    assert (found.kind, found.spends, found.placements, found.loads) == (DatagramKind.SPEND, [SPEND] * SPENDS, (), ())
    with pytest.raises(ValueError, match=f"{SPENDS + 1} reports of use"):
        encode(HELLO._replace(kind=DatagramKind.SPEND, spends=[SPEND] * (SPENDS + 1)), KEY)
    with pytest.raises(ValueError, match="HELLO holds no reports of use"):
        encode(HELLO._replace(spends=[SPEND]), KEY)


def test_prefixes_come_back_and_a_full_datagram_is_as_large_as_may_be():
    report = PrefixReport(2**64 - 1, 7, 256)
    data = encode(HELLO._replace(kind=DatagramKind.PREFIX, prefixes=[report] * PREFIXES), KEY)
    assert MAX_BYTES - 20 < len(data) <= MAX_BYTES
    found = decode(data, KEY, 1000.0)
    assert (found.kind, found.prefixes, found.placements) == (DatagramKind.PREFIX, [report] * PREFIXES, ())
    with pytest.raises(ValueError, match=f"{PREFIXES + 1} reports of prefixes"):
        encode(HELLO._replace(kind=DatagramKind.PREFIX, prefixes=[report] * (PREFIXES + 1)), KEY)


@pytest.mark.parametrize(("count", "loads", "size"), [(2, 0, 20), (1, 1, 20), (1, 0, 19)])
def test_prefixes_of_another_size_than_told_are_refused(count, loads, size):
    assert decode(sealed(b"PGP", 4, 6, 1, 1, 1000.0, count, loads, body=bytes(size)), KEY, 1000.0) is Refusal.MALFORMED


@pytest.mark.parametrize(("count", "loads", "size"), [(2, 0, 42), (1, 1, 42), (1, 0, 41)])
def test_reports_of_use_that_are_not_as_many_as_said_are_dropped(count, loads, size):
    data = sealed(b"PGP", 4, 5, 1, 2, 1000.0, count, loads, body=bytes(size))
    assert decode(data, KEY, 1000.0) is Refusal.MALFORMED
