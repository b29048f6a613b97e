"""The program of the process that reads bodies: `python -m promptgroup_router.reading.program DESCRIPTOR`.

It serves one router over a socket, one body after the other, and ends when the router closes the socket. A body is
parsed as a router would parse it, and its digest is returned. Then the router may request the body for an engine.
"""

import contextlib
import logging
import os
import signal
import socket
import sys
from typing import Any

from promptgroup_contract.caller_rules import EngineField
from promptgroup_contract.table import Prompt
from promptgroup_router.apis import structure
from promptgroup_router.apis.endpoints import ENDPOINTS, PASSED
from promptgroup_router.apis.request import ParsedRequest, preamble
from promptgroup_router.base.errors import ApiError, internal_error
from promptgroup_router.base.logs import configure, fault
from promptgroup_router.decision.composition import body_change
from promptgroup_router.features.cache_diagnosis import without_question
from promptgroup_router.http11 import content_coding
from promptgroup_router.reading import digest
from promptgroup_router.reading.letters import Letter, LetterReader, head
from promptgroup_router.routing.route import Rewrite, written

log = logging.getLogger("promptgroup.router")

READ_BYTES = 262_144
NICENESS = 10
"""Where cores are scarce, the router's event loop has priority."""


class BodyProgram:
    """Answers letters; holds the body that was read last."""

    def __init__(self) -> None:
        self._ask: ParsedRequest | None = None

    def answer(self, letter: Letter) -> tuple[bytes, bytes]:
        """Return the head and the content of the letter that answers a letter."""
        try:
            if "path" in letter.document:
                return head(self._read(letter), 0), b""
            content = self._write(letter.document)
        except Exception as failure:  # noqa: BLE001 # one failure must not end later requests
            error = failure if isinstance(failure, ApiError) else internal_error()
            if error is not failure:
                log.error("a large body could not be read", extra=fault(failure))  # noqa: TRY400 # it may repeat a prompt
            about = {"status": error.status, "message": str(error), "param": error.param, "code": error.code}
            return head({"refused": about}, 0), b""
        return head({}, len(content)), content

    def _read(self, letter: Letter) -> dict[str, Any]:
        self._ask = None
        endpoint, body = ENDPOINTS.get(letter.document["path"].encode(), PASSED), bytes(letter.content)
        coding, most = letter.document.get("coding", ""), letter.document.get("most", 0)
        if coding:
            plain = content_coding.decoded(coding, body, most)
            if plain is None:
                raise content_coding.too_large(most)
            body = plain
        structure.check(body, endpoint.values)
        self._ask = request = endpoint.parse(body)
        result = digest.digest(
            request, letter.document["declared"], asks_by_header=letter.document.get("asks_by_header", False)
        )
        return result | {"size": len(body)} if coding else result

    def _write(self, order: dict[str, Any]) -> bytes:
        request, self._ask = self._ask, None
        if request is None:
            raise AssertionError("a body is read before it is written")
        prompt = order["prompt"]
        put = None
        if prompt is not None:
            put = preamble(Prompt(*prompt["texts"]), prompt["model"], appends=prompt["appends"])
        rewrite = Rewrite(
            allowed=frozenset(map(EngineField, order["allowed"])),
            stripped=frozenset(order["stripped"]),
            ordered=order["ordered"],
            preamble=put,
            model=order["model"],
            changes=tuple(map(body_change, order["changes"])),
        )
        return written(without_question(request) if order.get("unasked") else request, rewrite)


def main(descriptor: int) -> None:
    """Serve until the router closes the socket."""
    # the router handles a terminal's signals, and closes the socket when it ends
    for number in (signal.SIGINT, signal.SIGTERM, signal.SIGHUP):
        signal.signal(number, signal.SIG_IGN)
    with contextlib.suppress(OSError):
        os.nice(NICENESS)
    configure("WARNING", "plain")
    program, reader = BodyProgram(), LetterReader()
    with socket.socket(fileno=descriptor) as connection, contextlib.suppress(ConnectionError):
        while data := connection.recv(READ_BYTES):
            letter = reader.feed(data)
            if letter is None:
                continue
            value, content = program.answer(letter)
            del letter
            connection.sendall(value)
            connection.sendall(content)


if __name__ == "__main__":
    main(int(sys.argv[1]))
