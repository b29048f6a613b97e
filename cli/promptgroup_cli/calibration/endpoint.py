"""Gets embeddings of texts from an endpoint as OpenAI defines it (`/v1/embeddings`)."""

import os
from array import array
from collections.abc import Callable, Sequence

import orjson
import urllib3

from promptgroup_cli.base import bounded_json
from promptgroup_cli.base.bounded_json import JsonError
from promptgroup_cli.base.errors import InputError, ReachError
from promptgroup_operator.base.unreachable import reason
from promptgroup_router.semantic.embedding import EmbeddingError, unit

SECONDS = 60.0
"""Time limit for one request."""
AT_ONCE = 32
"""Texts of one request."""
MOST_BYTES = 16 << 20
"""Most bytes of an answer."""

Embed = Callable[[Sequence[str]], list["array[float]"]]
"""Returns the embeddings of texts, each of length 1."""


def from_endpoint(url: str, model: str, key_variable: str | None) -> Embed:
    """Return a function that requests embeddings from an endpoint.

    Args:
        url: URL of the endpoint.
        model: model that is requested.
        key_variable: name of the environment's variable with the key for it; None for no key.

    Raises:
        InputError: there is no such variable.
    """
    headers = {"content-type": "application/json", "accept": "application/json"}
    if key_variable is not None:
        if not (key := os.environ.get(key_variable, "")):
            raise InputError(f"--key-env is {key_variable}, which is not set: put the endpoint's key into it")
        headers["authorization"] = f"Bearer {key}"

    def embed(texts: Sequence[str]) -> "list[array[float]]":
        result: list[array[float]] = []
        with urllib3.PoolManager(retries=False, timeout=SECONDS, headers=headers) as pool:
            for start in range(0, len(texts), AT_ONCE):
                result += _ask(pool, url, model, texts[start : start + AT_ONCE])
        if len({len(vector) for vector in result}) > 1:
            raise ReachError(f"{url} gave embeddings of several lengths")
        return result

    return embed


def _ask(pool: urllib3.PoolManager, url: str, model: str, texts: Sequence[str]) -> "list[array[float]]":
    body = orjson.dumps({"model": model, "input": list(texts), "encoding_format": "float"})
    try:
        response = pool.request("POST", url, body=body, redirect=False, preload_content=False)
        content = response.read(MOST_BYTES + 1)
        response.release_conn()
    except (urllib3.exceptions.HTTPError, OSError, ValueError) as error:
        raise ReachError(f"{url} does not answer: {reason(error)}") from None
    if response.status != 200:
        raise ReachError(f"{url} answered with status {response.status}: is it an endpoint for embeddings?")
    if len(content) > MOST_BYTES:
        raise ReachError(f"{url} answered with more than {MOST_BYTES >> 20} MiB")
    try:
        doc = bounded_json.parse(content)
        data = doc["data"]
        vectors = {item["index"]: unit(item["embedding"]) for item in data}
        return [vectors[index] for index in range(len(texts))]
    except (JsonError, EmbeddingError, KeyError, TypeError):
        raise ReachError(f"{url} did not answer with one embedding for each text") from None
