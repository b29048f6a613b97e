import pytest
from hypothesis import given
from hypothesis import strategies as st

from promptgroup_picker.http2.grpc_messages import LARGE, GrpcError, GrpcStatus, MessageReader, framed


@given(st.lists(st.binary(max_size=30)), st.data())
def test_messages_are_the_same_however_they_are_cut(written, data):
    raw = b"".join(map(framed, written))
    cuts = sorted(data.draw(st.lists(st.integers(0, len(raw)), max_size=6)))
    reader, found = MessageReader(30), []
    for start, end in zip([0, *cuts], [*cuts, len(raw)], strict=True):
        found += reader.feed(raw[start:end])
    assert found == written
    assert reader.waiting == 0


@pytest.mark.parametrize("whole", [True, False])
def test_what_is_compressed_or_too_large_is_refused(whole):
    data = framed(b"12345") if whole else framed(b"12345")[:5]
    with pytest.raises(GrpcError) as found:
        list(MessageReader(4).feed(data))
    assert found.value.status is GrpcStatus.RESOURCE_EXHAUSTED
    with pytest.raises(GrpcError) as found:
        list(MessageReader(9).feed(b"\1" + data[1:]))
    assert found.value.status is GrpcStatus.UNIMPLEMENTED


@pytest.mark.parametrize("cut", [3, 5, 1000, None])
def test_a_large_message_is_told_once_before_it_is_kept(cut):
    told: list[int] = []
    reader = MessageReader(2**20, told.append)
    small, large = framed(b"x" * LARGE), framed(b"x" * (LARGE + 1))
    for data in (small, large[:cut], large[cut:] if cut else b"", large):
        list(reader.feed(data))
    assert told == [LARGE + 1] * 2
    assert reader.waiting == 0


def test_what_refuses_a_large_message_ends_the_stream():
    def refuse(size: int) -> None:
        raise GrpcError(GrpcStatus.RESOURCE_EXHAUSTED, str(size))

    with pytest.raises(GrpcError, match="200000"):
        list(MessageReader(2**20, refuse).feed(framed(b"x" * 200_000)[:5]))
