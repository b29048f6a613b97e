"""Makes the question to a router where a request would go, and reads the answer. Does no I/O."""

import json
from collections.abc import Mapping
from typing import Any

from promptgroup_cli.base import bounded_json
from promptgroup_cli.base.bounded_json import JsonError
from promptgroup_cli.base.errors import InputError
from promptgroup_cli.reach.each_router import no_router
from promptgroup_cli.reach.inputs import path_of
from promptgroup_router.apis.endpoints import ENDPOINTS
from promptgroup_router.apis.request import CHAT_PATH


def explain_question(body: str, headers: Mapping[str, str]) -> bytes:
    """Return the question; the body tells which API it is of.

    Raises:
        InputError: requests of that API are routed by their model alone, which is nothing to explain.
    """
    try:
        parsed = bounded_json.parse(body.encode())
    except JsonError:
        parsed = None  # the router says what is wrong
    path = path_of(parsed) if isinstance(parsed, dict) else CHAT_PATH
    if not ENDPOINTS[path].cached:
        raise InputError(
            f"the body is one for {path.decode()}, which any replica of its model serves as well as another: "
            "give one with a prompt"
        )
    return json.dumps({"path": path.decode(), "headers": dict(headers), "body": body}).encode()


def parse_explanation(by: str, answer: bytes) -> dict[str, Any]:
    """Return the answer, with who gave it as `by`.

    Raises:
        ReachError: it is none of a router.
    """
    try:
        return {"by": by, **bounded_json.parse(answer)}
    except (JsonError, TypeError):
        raise no_router(by) from None
