import json

import pytest

from bench.router import requests


@pytest.mark.parametrize("kilobytes", requests.SIZES)
def test_a_body_has_its_size_and_ends_with_a_question(kilobytes: int) -> None:
    data = requests.body(kilobytes, 3)
    assert 0.8 < len(data) / (kilobytes * 1000) < 1.2
    messages = json.loads(data)["messages"]
    assert messages[0] == {"role": "system", "content": requests.SYSTEM}
    assert messages[-1]["role"] == "user"


def test_sessions_differ_and_streams_are_marked_for_engines() -> None:
    assert len({requests.body(8, session) for session in range(8)}) == 8
    head, _, body = requests.request(1, 0, stream=True).partition(b"\r\n\r\n")
    assert b"Bearer sk-stream" in head
    assert f"Content-Length: {len(body)}".encode() in head
    assert b'"stream":true' in body
