"""Writes requests to an endpoint for embeddings, and parses its answers. Does no I/O and reads no clock.

The endpoint is the user's own, and may be wrong: an answer is accepted only if it is a vector of finite numbers.
"""

from array import array
from math import fsum, isfinite, sqrt
from operator import mul

import orjson

MOST_DIMENSIONS = 8192
"""Most numbers of an embedding."""
MOST_ANSWER_BYTES = 1 << 20
"""Most bytes of an answer."""


class EmbeddingError(Exception):
    """An answer has no embedding. The message never repeats the data that was sent."""


def request_body(text: str, model: str) -> bytes:
    """Return the body of a request for the embedding of a text."""
    return orjson.dumps({"model": model, "input": text, "encoding_format": "float"})


def read_embedding(body: bytes) -> "array[float]":
    """Return the embedding of an answer, scaled to length 1.

    Raises:
        EmbeddingError: there is none, or more than one.
    """
    try:
        doc = orjson.loads(body)
    except orjson.JSONDecodeError:
        raise EmbeddingError("the answer is no JSON") from None
    data = doc.get("data") if isinstance(doc, dict) else None
    if not isinstance(data, list) or len(data) != 1 or not isinstance(data[0], dict):
        raise EmbeddingError("the answer has no `data` with one embedding")
    return unit(data[0].get("embedding"))


def unit(values: object) -> "array[float]":
    """Return a vector of length 1 in the direction of these numbers.

    Raises:
        EmbeddingError: the values are no finite numbers, too many, or all zero.
    """
    if not isinstance(values, list) or not 1 <= len(values) <= MOST_DIMENSIONS:
        raise EmbeddingError(f"the embedding is no list of 1 to {MOST_DIMENSIONS} numbers")
    if not all(type(value) is float or type(value) is int for value in values):
        raise EmbeddingError("the embedding has something that is no number")
    try:
        largest = float(max(map(abs, values)))
    except OverflowError:
        largest = float("inf")
    if not isfinite(largest) or largest == 0:
        raise EmbeddingError("the embedding is zero, or has a number that is not finite")
    scaled = [value / largest for value in values]
    length = sqrt(fsum(map(mul, scaled, scaled)))
    return array("f", [value / length for value in scaled])
