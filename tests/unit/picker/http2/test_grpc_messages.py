import pytest
from hypothesis import given
from hypothesis import strategies as st

from promptgroup_picker.http2.grpc_messages import GrpcError, GrpcStatus, MessageReader, framed


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
