import pytest
from hypothesis import given
from hypothesis import strategies as st

from promptgroup_picker.http2 import frames
from promptgroup_picker.http2.frames import PREFACE, Frame, FrameReader, FrameType, Http2Error


@given(
    st.lists(st.tuples(st.integers(0, 255), st.integers(0, 255), st.integers(0, 2**31 - 1), st.binary(max_size=50))),
    st.data(),
)
def test_frames_are_the_same_however_they_are_cut(written, data):
    raw = PREFACE + b"".join(frames.frame(*each) for each in written)
    cuts = sorted(data.draw(st.lists(st.integers(0, len(raw)), max_size=8)))
    reader, found = FrameReader(), []
    for start, end in zip([0, *cuts], [*cuts, len(raw)], strict=True):
        found += reader.feed(raw[start:end])
    assert found == [Frame(*each) for each in written]
    assert reader.waiting == 0


def test_another_protocol_is_noticed_at_its_first_byte():
    with pytest.raises(Http2Error):
        list(FrameReader().feed(b"G"))


def test_a_frame_that_is_too_large_is_refused_by_its_length():
    reader = FrameReader()
    list(reader.feed(PREFACE))
    with pytest.raises(Http2Error, match="1048577"):
        list(reader.feed((2**20 + 1).to_bytes(3, "big") + bytes(6)))


@pytest.mark.parametrize(
    ("flags", "payload", "content"),
    [
        (0, b"abc", b"abc"),
        (frames.PADDED, b"\x02abc\0\0", b"abc"),
        (frames.WITH_PRIORITY, b"12345abc", b"abc"),
        (frames.PADDED | frames.WITH_PRIORITY, b"\x0112345abc\0", b"abc"),
    ],
)
def test_padding_and_priority_are_no_content(flags, payload, content):
    assert frames.content(Frame(FrameType.HEADERS, flags, 1, payload)) == content


def test_flags_that_a_frame_of_its_type_does_not_have_mean_nothing():
    assert frames.content(Frame(FrameType.DATA, frames.WITH_PRIORITY, 1, b"12345abc")) == b"12345abc"


@pytest.mark.parametrize("payload", [b"", b"\x03ab"])
def test_padding_beyond_the_frame_is_an_error(payload):
    with pytest.raises(Http2Error):
        frames.content(Frame(FrameType.DATA, frames.PADDED, 1, payload))


@pytest.mark.parametrize("payload", [b"12345", b"\0\x04\x80\0\0\0"])
def test_settings_out_of_range(payload):
    with pytest.raises(Http2Error):
        frames.read_settings(payload)


def test_settings_that_are_written_are_read():
    assert frames.read_settings(frames.settings({3: 7, 99: 1})[9:]) == {3: 7, 99: 1}


def test_frames_that_are_not_taken_stay():
    reader = FrameReader()
    reader.keep(PREFACE + frames.settings({}) * 3)
    for _ in reader.frames():
        break
    assert reader.waiting == 2 * frames.HEADER_BYTES
    assert len(list(reader.feed(frames.settings({})))) == 3
