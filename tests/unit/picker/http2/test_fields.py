from urllib.parse import unquote_to_bytes

import pytest
from hpack import Decoder, Encoder
from hypothesis import given
from hypothesis import strategies as st

from promptgroup_picker.http2 import fields
from promptgroup_picker.http2.budget import BLOCK_BYTES_A_UNIT, FIELD
from promptgroup_picker.http2.fields import FieldReader
from promptgroup_picker.http2.frames import Http2Error

REQUEST = [(":method", "POST"), (":path", "/a/b"), ("te", "trailers")]


@given(st.lists(st.sampled_from(["/a", "/b", "/c/d"]), max_size=12))
def test_the_path_of_each_list_whatever_the_table_holds(paths):
    encoder, reader = Encoder(), FieldReader()
    for path in paths:
        assert reader.path(encoder.encode([(":method", "POST"), (":path", path), ("x", path)])) == path


def test_a_list_that_only_refers_to_the_table_is_read_once():
    encoder, reader = Encoder(), FieldReader()
    reader.path(encoder.encode(REQUEST))
    block = encoder.encode(REQUEST)
    assert reader.path(block) == "/a/b"
    reader._decoder = None  # not asked again
    assert reader.path(block) == "/a/b"


def test_a_list_that_changes_the_table_is_read_each_time():
    encoder, reader = Encoder(), FieldReader()
    block = encoder.encode(REQUEST)
    reader.path(block)
    assert reader._last == b""


def test_a_list_without_a_path():
    assert FieldReader().path(Encoder().encode([("te", "trailers")])) == ""


@pytest.mark.parametrize("block", [b"\xff\xff\xff", b"\xbf", b"\x40\xff"])
def test_what_cannot_be_read_ends_the_connection(block):
    with pytest.raises(Http2Error):
        FieldReader().path(block)


def test_a_list_that_unpacks_to_too_much_is_refused():
    encoder, reader = Encoder(), FieldReader()
    encoder.encode([("x", "y" * 3000)])
    block = encoder.encode([("x", "y" * 3000)] * 30)
    assert len(block) < 3200
    with pytest.raises(Http2Error):
        reader.path(block)


@given(st.text(), st.integers(0, 16))
def test_what_ends_a_call_is_read_by_another(message, status):
    found = dict(Decoder().decode(fields.trailers(status, message), raw=True))
    assert found[b"grpc-status"] == str(status).encode()
    assert unquote_to_bytes(found.get(b"grpc-message", b"")) == message.encode()


def test_the_fields_of_an_answer():
    assert dict(Decoder().decode(fields.OK_FIELDS)) == {":status": "200", "content-type": "application/grpc"}


@pytest.mark.parametrize("size", [b"\x20", b"\x3f\xe1\x1f"])
def test_the_tables_size_changes_twice_in_a_list_at_most(size):
    assert FieldReader().path(2 * size + b"\x84") == "/"
    with pytest.raises(Http2Error, match="too often"):
        FieldReader().path(3 * size + b"\x84")


def test_a_list_costs_its_fields_and_its_bytes_and_the_same_one_again_next_to_nothing():
    reader = FieldReader()
    reader.path(b"\x84" * 100)
    assert reader.cost == 100 * FIELD + 100 // BLOCK_BYTES_A_UNIT
    reader.path(b"\x84" * 100)
    assert reader.cost == FIELD
