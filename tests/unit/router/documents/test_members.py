"""Documents of any form are read in tests/property/test_usage.py."""

import pytest

from promptgroup_router.documents.members import MOST_DEPTH, MOST_NAME, NOWHERE, MemberReader


def read(body: bytes, name: bytes = b"a", under: bytes = b"", size: int = 1 << 20, **limits: int) -> MemberReader:
    reader = MemberReader(name, under, **limits)
    for at in range(0, len(body), size):
        reader.feed(body[at : at + size])
    return reader


@pytest.mark.parametrize("size", [1, 2, 5, 1000])
@pytest.mark.parametrize(
    ("body", "under", "value"),
    [
        (b'{"a":{"b":[1,{"c":"}"}]}}', b"", b'{"b":[1,{"c":"}"}]}'),
        (b'{"b":{"a":{}},"a" : {"d":1}, "c":[{"a":{}}]}', b"", b'{"d":1}'),
        (b'{"a":{"a":{"x":1}}}', b"a", b'{"x":1}'),
        (b'{"b":{"a":{"x":1}},"a":{"y":2}}', b"b", b'{"x":1}'),
        (b'{"c":{"a":{"x":1}},"b":{"y":2}}', b"b", b""),
        (b'{"a":{"x":1},"b":{"c":{"a":{}}}}', b"b", b""),
        (b'{"b":[{"a":{"x":1}}],"c":{"b":{"a":{}}}}', b"b", b""),
        (b'{"a":"text"}', b"", b'"text"'),
        (b'{"a":"t\\"}{"}', b"", b'"t\\"}{"'),
        (b'{"x":"\\\\","a":{}}', b"", b"{}"),
        (b'{"\\u0061":{"x":1}}', b"", b'{"x":1}'),
        (b'{"\\u00":{"x":1},"\\ud800":{}}', b"", b""),
        (b'{"a":{"x":1},"a":7}', b"", b""),
        (b'{"a":7,"a":{"x":1}}', b"", b'{"x":1}'),
        (b'{"b":{"a":{"x":1}},"b":{}}', b"b", b""),
        (b'{"a":[{"x":1}]}', b"", b""),
        (b'[{"a":{"x":1}}]', b"", b""),
        (b'"a"', b"", b""),
        (b'{}{"a":{"x":1}}', b"", b""),
        (b'{"a":{"x":1}', b"", b'{"x":1}'),
        (b'{"a":{"x":1', b"", b""),
        (b"", b"", b""),
    ],
)
def test_the_member_at_its_place(body, under, value, size):
    reader = read(body, under=under, size=size)
    assert reader.value == value
    if value.startswith(b"{"):
        assert body[reader.begin :].startswith(value)


def test_a_value_that_is_too_long_is_none():
    assert read(b'{"a":{"b":"%b"}}' % (b"x" * 100), most=50).value == b""
    assert read(b'{"a":{"b":"%b"}}' % (b"x" * 100), most=50).begin == 5
    assert read(b'{"a":"%b"}' % (b"x" * MOST_NAME)).value
    assert read(b'{"a":"%b"}' % (b"x" * (MOST_NAME + 1))).value == b""
    assert read(b'{"a":"%b"}' % (b"x" * (MOST_NAME + 1)), size=7).value == b""
    assert read(b'{"%b":{}}' % (b"a" * 10_000), b"a" * 10_000).begin == NOWHERE


@pytest.mark.parametrize("text", [b"]]]]{", b'{"a"}', b'{:{"a":{}}', b"{\\", b'{"a":{]}', b"\xff", b'{"a":\\"{}"}'])
def test_what_is_no_json_does_no_harm(text):
    for size in (1, 100):
        read(text, size=size)


@pytest.mark.parametrize("depth", [MOST_DEPTH - 1, MOST_DEPTH + 3])
@pytest.mark.parametrize("size", [7, 1 << 20])
def test_a_document_that_no_parser_takes_has_no_members(depth, size):
    body = b'{"a":{"b":1},"c":' + b'{"d":' * (depth - 1) + b"1" + b"}" * depth
    assert read(body, size=size).value == (b'{"b":1}' if depth < MOST_DEPTH else b"")
