from promptgroup_picker.http2 import frames
from promptgroup_picker.http2.frames import FrameType
from support.grpcclient import Client


def test_fields_in_several_frames():
    client = Client()
    head = client.head(1)
    block = head[9:]
    client.send(
        frames.frame(FrameType.HEADERS, 0, 1, block[:2]),
        frames.frame(FrameType.CONTINUATION, 0, 1, block[2:3]),
        frames.frame(FrameType.CONTINUATION, frames.END_HEADERS, 1, block[3:]),
    )
    assert len(client.calls) == 1
