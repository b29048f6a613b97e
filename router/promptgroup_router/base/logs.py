"""Formats log lines: an event and its fields, plain or as JSON. Bodies, prompts and header values are never logged."""

import atexit
import logging
import sys
import time
import traceback
from collections.abc import Mapping
from contextlib import suppress
from pathlib import Path
from typing import TextIO

import orjson

ACCESS = "promptgroup.requests"
"""Logger of the lines about requests."""
OFF = logging.CRITICAL + 1
"""A level that no line has."""
FIELDS = "fields"
"""Attribute of a log record that has the event's fields."""
ACCESS_BYTES = 65_536
"""Most bytes of lines about requests that wait to be written."""
_BEGINNING = b'{"time":"%%b.%%03dZ","level":"INFO","logger":"%b","event":%%b' % ACCESS.encode()
"""The beginning of such a line, up to its fields."""
FRAMES = 8
"""Most stack frames that are logged of an unexpected error: the last ones."""


def fields(**values: object) -> dict[str, object]:
    """Return `extra` for a log call: `log.info("event", extra=fields(group=...))`."""
    return {FIELDS: values}


def fault(error: BaseException, **values: object) -> dict[str, object]:
    """Return `extra` for a log call about an unexpected error: its type and place. Its message may repeat a prompt.

    Args:
        error: the error.
        values: further fields.
    """
    frames = traceback.extract_tb(error.__traceback__)
    places = [f"{Path(frame.filename).stem}.{frame.name}:{frame.lineno}" for frame in frames[-FRAMES:]]
    return fields(**values, error=type(error).__name__, at=" ".join(places))


class Plain(logging.Formatter):
    """A formatter of lines like `time LEVEL logger event key=value …`."""

    def format(self, record: logging.LogRecord) -> str:
        """Return one line."""
        pairs = "".join(f" {key}={_quoted(str(value))}" for key, value in getattr(record, FIELDS, {}).items())
        return super().format(record) + pairs


def _quoted(value: str) -> str:
    """Quote a value that could be read as more than one."""
    return value if value and value.isprintable() and not set(value) & set(' ="') else orjson.dumps(value).decode()


class Json(logging.Formatter):
    """A formatter of one JSON object per line."""

    def format(self, record: logging.LogRecord) -> str:
        """Return one line."""
        at = time.strftime("%Y-%m-%dT%H:%M:%S", time.gmtime(record.created))
        line = {
            "time": f"{at}.{int(record.msecs):03d}Z",
            "level": record.levelname,
            "logger": record.name,
            "event": record.getMessage(),
            **getattr(record, FIELDS, {}),
        }
        if record.exc_info:
            line["traceback"] = self.formatException(record.exc_info)
        return orjson.dumps(line, default=str).decode()


class AccessLog:
    """Lines about requests, each a JSON object, which are written many at a time.

    A line by a handler of `logging` takes as much CPU as the rest of a request in compiled code: the handler looks for
    its caller, makes a record of twenty attributes, and flushes the stream.
    """

    __slots__ = ("_bytes", "_lines", "_second", "_stream", "_time")

    def __init__(self, stream: TextIO) -> None:
        self._stream = stream
        self._lines: list[bytes] = []
        """Lines that wait to be written, without their ends."""
        self._bytes = 0
        """Their bytes."""
        self._second = 0
        self._time = b""
        """The last line's time, up to the second."""

    def write(self, event: str, line: Mapping[str, object]) -> None:
        """Write a line about an event, with these fields."""
        now = time.time()  # noqa: TID251 - the clock that machines share
        second = int(now)
        if second != self._second:
            self._second, self._time = second, time.strftime("%Y-%m-%dT%H:%M:%S", time.gmtime(second)).encode()
        text = _BEGINNING % (self._time, int(1000 * (now - second)), orjson.dumps(event))
        # put together here, since a dictionary with all fields would be a copy of the line's
        text += b"," + orjson.dumps(line, default=str)[1:] if line else b"}"
        self._lines.append(text)
        self._bytes += len(text)
        if self._bytes >= ACCESS_BYTES:
            self.flush()

    def flush(self) -> None:
        """Write the lines that wait."""
        if not self._lines:
            return
        text = b"\n".join([*self._lines, b""]).decode()
        self._lines, self._bytes = [], 0
        with suppress(OSError, ValueError):  # who reads them has gone
            self._stream.write(text)
            self._stream.flush()


_access = logging.getLogger(ACCESS)
_access_logs: list[AccessLog] = []
"""The one that lines about requests are written to; none until `configure` turns it on."""


def log_request(event: str, line: Mapping[str, object]) -> None:
    """Write a line about a request, soon; to the handlers of the logger ACCESS unless `configure` was called."""
    if _access_logs:
        _access_logs[0].write(event, line)
    else:
        _access.info(event, extra={FIELDS: line})


def flush_requests() -> None:
    """Write the lines about requests that wait."""
    for access_log in _access_logs:
        access_log.flush()


def configure(level: str, form: str, *, access: bool = False, **always: object) -> None:
    """Send log lines to standard error, in the form `plain` or `json`; each has the fields `always`.

    Lines about requests, if `access` enables them, are JSON whatever the form and the level of other lines are.
    """
    handler = logging.StreamHandler()
    if always:

        def mark(record: logging.LogRecord) -> bool:
            setattr(record, FIELDS, getattr(record, FIELDS, {}) | always)
            return True

        handler.addFilter(mark)
    handler.setFormatter(Json() if form == "json" else Plain("%(asctime)s %(levelname)-7s %(name)s %(message)s"))
    logging.basicConfig(level=level, handlers=[handler])
    _access.setLevel(logging.INFO if access else OFF)
    _access.propagate = False
    _access_logs[:] = [AccessLog(sys.stderr)] if access else []
    atexit.register(flush_requests)
