"""Files that the commands about prompts read: their format, and the requests or texts in them.

A log is read line by line, so that its size does not matter; everything else is read at once. Messages never quote a
file.
"""

import argparse
import enum
import re
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import BinaryIO

import orjson

from promptgroup_cli.base import bounded_json
from promptgroup_cli.base.bounded_json import JsonError
from promptgroup_cli.base.errors import InputError
from promptgroup_cli.reach.files import STDIN, shown, standard_input, unreadable
from promptgroup_router.apis.anthropic import MESSAGES_PATH
from promptgroup_router.apis.endpoints import ENDPOINTS
from promptgroup_router.apis.request import CHAT_PATH, TEXT_PATH, ParsedRequest
from promptgroup_router.apis.responses import RESPONSES_PATH
from promptgroup_router.base.errors import ApiError

MOST_BYTES = 16 << 20
"""Limit of a file that is read at once, and of a line of a log: many times a router's limit for bodies."""

FIELDS = ("messages", "prompt", "instructions", "input")
"""Fields of bodies, one of which each has."""
INPUT = "input"
"""The field of a response's body that is also a wrapper's name."""
EMBEDDINGS_PATH = b"/v1/embeddings"
OF_EMBEDDINGS = ("encoding_format", "dimensions")
"""Fields that only bodies for embeddings have; OpenAI's clients send the first always."""

WRAPPERS = ("body", "request", "payload", "params", INPUT, "data")
"""Keys under which a log's record has the request's body, as an object or as its text."""
WRAPPED = 3
"""Nested wrappers that are searched, as in `{"request": {"body": ...}}`."""


class InputFormat(enum.StrEnum):
    """The format of a file."""

    PROMPT = "prompt"
    """A system prompt: text, byte for byte."""
    REQUEST = "request"
    """One JSON document: the body of a request, or a list of bodies."""
    LOG = "log"
    """Bodies, or records around them, one a line (JSON Lines)."""
    MANIFEST = "manifest"
    """YAML or JSON with PromptGroups, as kubectl accepts it."""


SUFFIXES = {
    ".jsonl": InputFormat.LOG,
    ".ndjson": InputFormat.LOG,
    ".yaml": InputFormat.MANIFEST,
    ".yml": InputFormat.MANIFEST,
    ".txt": InputFormat.PROMPT,
    ".md": InputFormat.PROMPT,
}
JSON_SUFFIX = ".json"
"""A file of this name is a request, a log or a manifest, and never a prompt."""


def add_files(parser: argparse.ArgumentParser, default: list[str] | None = None) -> None:
    """Add the flags that name a command's files and their format; without a default, a file must be named."""
    parser.add_argument(
        "files",
        nargs="+" if default is None else "*",
        default=default,
        metavar="FILE",
        help="a prompt, a request body (OpenAI's chat and text completions and responses, Anthropic's messages), a log "
        f"of bodies (JSON Lines), or PromptGroups; - for standard input{'' if default is None else ' (default)'}",
    )
    parser.add_argument(
        "--as",
        dest="format",
        type=InputFormat,
        choices=tuple(InputFormat),
        help="format of the files (default: by name)",
    )


@dataclass(frozen=True, slots=True)
class InputRequest:
    """A request of a log, or the reason why a line is not one."""

    line: int
    """Counted from 1; 1 for a document of several lines."""
    ask: ParsedRequest | None
    problem: str = ""


@dataclass(frozen=True, slots=True)
class InputText:
    """A file that is read at once."""

    format: InputFormat
    """PROMPT or MANIFEST."""
    content: str


Content = InputText | Iterator[InputRequest]


@contextmanager
def opened(name: str, given: InputFormat | None = None) -> Iterator[Content]:
    """Open a file and yield its content.

    Args:
        name: of the file; `-` for standard input.
        given: its format; None to detect it by the file's name or by its beginning.

    Raises:
        InputError: the file cannot be read.
    """
    try:
        if name == STDIN:
            yield _content(name, standard_input(), given)
        else:
            with Path(name).open("rb") as file:
                yield _content(name, file, given)
    except OSError as error:
        raise InputError(f"{shown(name)}: {unreadable(name, error)}") from None


def _content(name: str, file: BinaryIO, given: InputFormat | None) -> Content:
    first = file.readline(MOST_BYTES)
    suffix = Path(name).suffix
    format_ = given or SUFFIXES.get(suffix) or _format_of_line(first)
    if format_ is InputFormat.LOG:
        return _lines(first, file)
    whole = first + file.read(MOST_BYTES + 1 - len(first))
    if len(whole) > MOST_BYTES:
        raise InputError(f"{shown(name)}: longer than {MOST_BYTES >> 20} MiB: a log of requests is read with --as log")
    if format_ is InputFormat.REQUEST or (format_ is None and (suffix == JSON_SUFFIX or whole[:1] in (b"{", b"["))):
        try:
            document = _document(whole)
        except JsonError as error:
            if format_ is InputFormat.REQUEST or suffix == JSON_SUFFIX or "levels" in str(error):
                raise InputError(f"{shown(name)}: {error}; --as prompt, log or manifest names another format") from None
            document = None
        if document is not None:
            return document
    try:
        content = whole.decode()
    except UnicodeDecodeError as error:
        raise InputError(f"{shown(name)}: not text in UTF-8, at byte {error.start}") from None
    if format_ is None:
        is_manifest = suffix == JSON_SUFFIX or _KIND.search(content) is not None
        format_ = InputFormat.MANIFEST if is_manifest else InputFormat.PROMPT
    return InputText(format_, content)


def _format_of_line(first: bytes) -> InputFormat | None:
    """Return the format of a file whose first line is a JSON object by itself; None when it is not."""
    try:
        result = orjson.loads(first)
    except orjson.JSONDecodeError:
        return None
    if not isinstance(result, dict):
        return None
    return InputFormat.MANIFEST if "apiVersion" in result else InputFormat.LOG


_KIND = re.compile(r"""^[\s{]*["']?kind["']?\s*:\s*["']?PromptGroup["']?\s*,?\s*$""", re.MULTILINE)


def _document(whole: bytes) -> Iterator[InputRequest] | None:
    """Return the requests of a JSON document; None when it is a Kubernetes object.

    Raises:
        JsonError: it is no JSON document, or nested too deeply.
    """
    result = bounded_json.parse(whole)
    if isinstance(result, dict) and "apiVersion" in result:
        return None
    bodies = result if isinstance(result, list) else [result]
    return (_request(1, body) for body in bodies)


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
    body, path = _body_in(record, WRAPPED, None)
    if body is None:
        return InputRequest(number, None, f"no body of a request: it has none of {', '.join(FIELDS)}")
    path = path or path_of(body)
    if not ENDPOINTS[path].cached:
        return InputRequest(number, None, f"a request for {path.decode()}: it has no prompt that engines keep")
    try:
        return InputRequest(number, _parsed(body, path))
    except (ApiError, JsonError) as error:
        return InputRequest(number, None, str(error))


def _body_in(record: object, wrapped: int, path: bytes | None) -> tuple[dict[str, object] | None, bytes | None]:
    """Return the body that a record is or contains, and its path in the API, if recorded.

    Args:
        record: an object, or its text.
        wrapped: nested records that are searched.
        path: the path that an enclosing record names.
    """
    if isinstance(record, str):
        try:
            record = orjson.loads(record)
        except orjson.JSONDecodeError:
            return None, None
    if not isinstance(record, dict) or not wrapped:
        return None, None
    if "messages" in record or "prompt" in record or "instructions" in record:
        return record, path
    key = next((key for key in WRAPPERS if key in record), None)
    if key is None:
        return None, None
    inner, result = _body_in(record[key], wrapped - 1, _named_path(record) or path)
    if inner is None and key == INPUT and isinstance(record[INPUT], str | list):
        return record, path  # this field is the request's own input
    return inner, result


def _named_path(record: Mapping[str, object]) -> bytes | None:
    """Return the path that a record names, as those of OpenAI's batches do, if routers serve it."""
    url = record.get("url")
    path = url.encode(errors="replace") if isinstance(url, str) else b""
    return path if path in ENDPOINTS else None


def _parsed(body: dict[str, object], path: bytes) -> ParsedRequest:
    """Parse a body of OpenAI's or of Anthropic's API; one for a gateway that knows its model may name none.

    Raises:
        ApiError: a field is wrong.
        JsonError: the body is nested too deeply.
    """
    bounded_json.check_depth(body)
    return ENDPOINTS[path].parse(orjson.dumps(body | {"model": body.get("model") or "-"}))


def path_of(body: Mapping[str, object]) -> bytes:
    """Return the API path of a body; the likeliest, where clients may send the body to several.

    Anthropic's has a system field, a version, or input schemas. A text completion's prompt is a text or a list, that of
    a response an object. An input belongs to a response, unless it is a list of texts or tokens, or other fields
    request an embedding.
    """
    if "messages" in body:
        tools = body.get("tools")
        listed = tools if isinstance(tools, list) else []
        declares = any(isinstance(item, dict) and "input_schema" in item for item in listed)
        return MESSAGES_PATH if declares or "system" in body or "anthropic_version" in body else CHAT_PATH
    if "prompt" in body and not (INPUT in body and not isinstance(body["prompt"], str | list)):
        return TEXT_PATH
    if INPUT not in body:
        return RESPONSES_PATH if "instructions" in body else CHAT_PATH
    given = body[INPUT]
    embedded = isinstance(given, list) and any(not isinstance(item, dict) for item in given)
    return EMBEDDINGS_PATH if embedded or any(field in body for field in OF_EMBEDDINGS) else RESPONSES_PATH
