"""JSON from files and from the network. Does no I/O.

Documents that are nested more deeply than serialisers can write are refused here, so that no later step fails on them.
"""

from typing import Any

import orjson

DEPTH = 254
"""Levels that orjson can serialise; it parses 1,024."""


class JsonError(ValueError):
    """Not JSON, or nested too deeply. The message says where, and never quotes the text."""


def parse(content: bytes) -> Any:
    """Parse a document, in linear time.

    Raises:
        JsonError: the content is no JSON document, or nested too deeply.
    """
    try:
        result = orjson.loads(content)
    except orjson.JSONDecodeError as error:
        if any(word in error.msg for word in ("depth", "ecursion")):  # by the version of orjson
            raise JsonError(_TOO_DEEP) from None
        raise JsonError(f"not JSON, at line {error.lineno} column {error.colno}") from None
    check_depth(result)
    return result


def check_depth(value: object) -> None:
    """Raise JsonError for a parsed value that is nested too deeply."""
    try:
        orjson.dumps(value)
    except orjson.JSONEncodeError:
        raise JsonError(_TOO_DEEP) from None


_TOO_DEEP = f"JSON that is nested more than {DEPTH} levels deep"
