"""Datagrams between routers: what is sent is what is read, and nothing else is ever read."""

from hypothesis import given
from hypothesis import strategies as st

from promptgroup_router.callers.account import SpendReport
from promptgroup_router.peers.datagram import (
    MAX_BYTES,
    PREFIXES,
    RECORDS,
    SPENDS,
    Datagram,
    DatagramKind,
    Refusal,
    decode,
    encode,
    seal_key,
)
from promptgroup_router.policy.gossip import LoadReport, PlacementReport, PrefixReport

KEY = seal_key(b"one secret, 16 b")
U64 = st.integers(0, 2**64 - 1)
U32 = st.integers(0, 2**32 - 1)
TIMES = st.floats(0, 2**32)
NOTES = st.builds(PlacementReport, U64, U64, U64, st.integers(0, 2**16 - 1), U32, U32)
MICROS = st.integers(0, 2**32 - 1).map(lambda micros: micros / 1e6)
LOADS = st.builds(LoadReport, U64, st.integers(0, 2**16 - 1), U32, MICROS, MICROS, U64, U32, st.integers(0, 2**16 - 1))

SPENT = st.builds(SpendReport, U64, U64, st.integers(-(2**63), 2**63 - 1), U32, U32, U64, st.integers(0, 2**16 - 1))

PREFIXED = st.builds(PrefixReport, U64, U64, U32)


@st.composite
def datagrams(draw):
    if draw(st.booleans()):
        spends = draw(st.lists(SPENT, max_size=SPENDS))
        return Datagram(DatagramKind.SPEND, draw(U64), draw(U64), draw(TIMES), spends=spends)
    if draw(st.booleans()):
        prefixes = draw(st.lists(PREFIXED, max_size=PREFIXES))
        return Datagram(DatagramKind.PREFIX, draw(U64), draw(U64), draw(TIMES), prefixes=prefixes)
    placements = draw(st.lists(NOTES, max_size=RECORDS))
    loads = draw(st.lists(LOADS, max_size=RECORDS - len(placements)))
    kind = draw(
        st.sampled_from([kind for kind in DatagramKind if kind not in (DatagramKind.SPEND, DatagramKind.PREFIX)])
    )
    return Datagram(kind, draw(U64), draw(U64), draw(TIMES), placements, loads)


@given(datagrams())
def test_what_is_sent_is_what_is_read(datagram):
    data = encode(datagram, KEY)
    assert len(data) <= MAX_BYTES
    found = decode(data, KEY, datagram.sent)
    assert found[:4] == datagram[:4]
    assert list(found.placements) == list(datagram.placements)
    assert list(found.spends) == list(datagram.spends)
    assert list(found.prefixes) == list(datagram.prefixes)
    for there, here in zip(found.loads, datagram.loads, strict=True):
        assert there[:3] == here[:3]
        assert there.written == here.written
        assert there.unplaced == here.unplaced
        assert abs(there.pending - here.pending) < 2e-6
        assert abs(there.age - here.age) < 2e-6


@given(st.binary(max_size=MAX_BYTES + 50), st.floats())
def test_garbage_is_refused_and_never_raises(data, wall):
    assert isinstance(decode(data, KEY, wall), Refusal)


@given(st.binary(max_size=200), st.floats())
def test_garbage_that_begins_well_is_refused(data, wall):
    assert isinstance(decode(b"PGP\x04" + data, KEY, wall), Refusal)


@given(datagrams(), st.data())
def test_a_bit_flipped_anywhere_is_noticed(datagram, data):
    sent = bytearray(encode(datagram, KEY))
    bit = data.draw(st.integers(0, 8 * len(sent) - 1))
    sent[bit // 8] ^= 1 << bit % 8
    assert isinstance(decode(bytes(sent), KEY, datagram.sent), Refusal)


@given(datagrams(), st.data())
def test_a_datagram_cut_or_grown_is_refused(datagram, data):
    sent = encode(datagram, KEY)
    assert isinstance(decode(sent[: data.draw(st.integers(0, len(sent) - 1))], KEY, datagram.sent), Refusal)
    assert isinstance(decode(sent + data.draw(st.binary(min_size=1, max_size=40)), KEY, datagram.sent), Refusal)


@given(datagrams())
def test_another_key_reads_nothing(datagram):
    assert decode(encode(datagram, KEY), seal_key(b"another secret.."), datagram.sent) is Refusal.FORGED
