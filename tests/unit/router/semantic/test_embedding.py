"""What an endpoint is asked for an embedding, and what it may answer."""

import math

import orjson
import pytest
from hypothesis import given
from hypothesis import strategies as st

from promptgroup_router.semantic.embedding import EmbeddingError, read_embedding, request_body, unit
from support.examples import examples


def test_the_endpoint_is_asked_for_numbers():
    assert orjson.loads(request_body("Hi", "m")) == {"model": "m", "input": "Hi", "encoding_format": "float"}


def test_an_embedding_has_length_one():
    assert list(read_embedding(b'{"data":[{"embedding":[3,4.0]}]}')) == pytest.approx([0.6, 0.8])
    assert list(unit([1e308, 1e308])) == pytest.approx([math.sqrt(0.5)] * 2)


@pytest.mark.parametrize(
    "body",
    [
        b"",
        b"[]",
        b"{}",
        b'{"data":[]}',
        b'{"data":[{"embedding":[1]},{"embedding":[1]}]}',
        b'{"data":[7]}',
        b'{"data":[{"embedding":"AAAA"}]}',
        b'{"data":[{"embedding":[]}]}',
        b'{"data":[{"embedding":[0,0]}]}',
        b'{"data":[{"embedding":[1,"2"]}]}',
        b'{"data":[{"embedding":[1,true]}]}',
        b'{"data":[{"embedding":[1,null]}]}',
        b'{"data":[{"embedding":[1e999]}]}',
        b'{"data":[{"embedding":[%b]}]}' % b",".join([b"1"] * 8193),
    ],
)
def test_whatever_else_it_sends_is_no_embedding(body):
    with pytest.raises(EmbeddingError):
        read_embedding(body)


json = st.recursive(
    st.none() | st.booleans() | st.integers(-(2**63), 2**64 - 1) | st.floats() | st.text(),
    lambda inner: st.lists(inner) | st.dictionaries(st.sampled_from(["data", "embedding", "x"]), inner),
)


@pytest.mark.heavy
@examples(300)
@given(json | st.builds(lambda vector: {"data": [{"embedding": vector}]}, json))
def test_an_answer_is_a_vector_of_length_one_or_refused(doc):
    try:
        vector = read_embedding(orjson.dumps(doc))
    except EmbeddingError:
        return
    assert math.fsum(value * value for value in vector) == pytest.approx(1, abs=1e-5)
