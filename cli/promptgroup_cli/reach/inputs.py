"""Files that commands about prompts read: what each is, and the requests or texts in it.

A log is read line by line, so that its size does not matter; everything else at once. Messages never quote a file.
"""

import enum
import re
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import BinaryIO

import orjson

from promptgroup_router.apis.request import ApiKind, ParsedRequest, parse
from promptgroup_router.base.errors import ApiError

STDIN = "-"

MOST_BYTES = 16 << 20
"""Of a file that is read at once, and of a line of a log: what the router takes as a body, by default, many times."""

WRAPPERS = ("body", "request", "payload", "params", "input", "data")
"""Keys under which a log's record has the request's body, as an object or as its text."""
WRAPPED = 3
"""Wrappers around each other that are looked into, as in `{"request": {"body": ...}}`."""


class InputError(Exception):
    """A file cannot be read. The message names it, what is wrong, and the way out."""


class InputFormat(enum.StrEnum):
    """What a file is."""

    PROMPT = "prompt"
    """A system prompt: text, byte for byte."""
    REQUEST = "request"
    """One JSON document: the body of a request, or a list of bodies."""
    LOG = "log"
    """Bodies, or records around them, one a line (JSON Lines)."""
    MANIFEST = "manifest"
    """YAML or JSON with PromptGroups, as kubectl takes it."""


SUFFIXES = {
    ".jsonl": InputFormat.LOG,
    ".ndjson": InputFormat.LOG,
    ".yaml": InputFormat.MANIFEST,
    ".yml": InputFormat.MANIFEST,
    ".txt": InputFormat.PROMPT,
    ".md": InputFormat.PROMPT,
}


@dataclass(frozen=True, slots=True)
class InputRequest:
    """A request of a log, or why a line of it is none."""

    line: int
    """From 1 on; 1 for a document of several lines."""
    ask: ParsedRequest | None
    problem: str = ""


@dataclass(frozen=True, slots=True)
class InputText:
    """A file that is read at once."""

    format: InputFormat
    """PROMPT or MANIFEST."""
    content: str


Content = InputText | Iterator[InputRequest]


def shown(name: str) -> str:
    """A file's name for people."""
    return "standard input" if name == STDIN else name


@contextmanager
def opened(name: str, given: InputFormat | None = None) -> Iterator[Content]:
    """A file's content.

    Args:
        name: of the file; `-` for standard input.
        given: what it is; told by its name or its first line when None.

    Raises:
        InputError: it cannot be read.
    """
    try:
        if name == STDIN:
            yield _content(name, sys.stdin.buffer, given)
        else:
            with Path(name).open("rb") as file:
                yield _content(name, file, given)
    except OSError as error:
        raise InputError(f"{shown(name)}: {error.strerror or error}") from None


def _content(name: str, file: BinaryIO, given: InputFormat | None) -> Content:
    first = file.readline(MOST_BYTES)
    format_ = given or SUFFIXES.get(Path(name).suffix) or _sniffed(first)
    if format_ is InputFormat.LOG:
        return _lines(first, file)
    whole = first + file.read(MOST_BYTES + 1 - len(first))
    if len(whole) > MOST_BYTES:
        raise InputError(f"{shown(name)}: longer than {MOST_BYTES >> 20} MiB: a log of requests is read with --as log")
    if format_ is InputFormat.REQUEST or (format_ is None and whole[:1] in (b"{", b"[")):
        found = _document(whole)
        if found is not None:
            return found
        if format_ is InputFormat.REQUEST:
            raise InputError(f"{shown(name)}: not JSON; --as prompt, log or manifest says what it is")
    try:
        content = whole.decode()
    except UnicodeDecodeError as error:
        raise InputError(f"{shown(name)}: not text in UTF-8, at byte {error.start}") from None
    return InputText(format_ or (InputFormat.MANIFEST if _KIND.search(content) else InputFormat.PROMPT), content)


def _sniffed(first: bytes) -> InputFormat | None:
    """What a file is whose first line is a JSON object by itself; None when it is not."""
    try:
        found = orjson.loads(first)
    except orjson.JSONDecodeError:
        return None
    if not isinstance(found, dict):
        return None
    return InputFormat.MANIFEST if "apiVersion" in found else InputFormat.LOG


_KIND = re.compile(r"""^[\s{]*["']?kind["']?\s*:\s*["']?PromptGroup["']?\s*,?\s*$""", re.MULTILINE)


def _document(whole: bytes) -> Iterator[InputRequest] | None:
    """The requests of a JSON document; None when it is another one."""
    try:
        found = orjson.loads(whole)
    except orjson.JSONDecodeError:
        return None
    if isinstance(found, dict) and "apiVersion" in found:
        return None
    bodies = found if isinstance(found, list) else [found]
    return (_request(1, each) for each in bodies)


def _lines(first: bytes, file: BinaryIO) -> Iterator[InputRequest]:
    number, line = 0, first
    while line:
        number += 1
        if len(line) >= MOST_BYTES and not line.endswith(b"\n"):
            yield InputRequest(number, None, f"longer than {MOST_BYTES >> 20} MiB")
            while line and not line.endswith(b"\n"):
                line = file.readline(MOST_BYTES)
        elif line.strip():
            yield _line(number, line)
        line = file.readline(MOST_BYTES)


def _line(number: int, line: bytes) -> InputRequest:
    try:
        return _request(number, orjson.loads(line))
    except orjson.JSONDecodeError:
        return InputRequest(number, None, "not JSON")


def _request(number: int, record: object) -> InputRequest:
    for _ in range(WRAPPED):
        if isinstance(record, str):
            try:
                record = orjson.loads(record)
            except orjson.JSONDecodeError:
                break
        if not isinstance(record, dict):
            break
        if "messages" in record or "prompt" in record:
            kind = ApiKind.CHAT if "messages" in record else ApiKind.TEXT
            try:
                # a body for a gateway that knows its model may name none
                return InputRequest(number, parse(kind, orjson.dumps(record | {"model": record.get("model") or "-"})))
            except ApiError as error:
                return InputRequest(number, None, str(error))
        record = next((record[key] for key in WRAPPERS if key in record), None)
    return InputRequest(number, None, "no body of a request: it has neither messages nor prompt")
