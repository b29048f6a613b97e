"""Formats log lines: an event and its fields, plain or as JSON. Bodies, prompts and header values are never logged."""

import logging
import time
import traceback
from pathlib import Path

import orjson

ACCESS = "promptgroup.requests"
"""Logger of the lines about requests."""
OFF = logging.CRITICAL + 1
"""A level that no line has."""
FIELDS = "fields"
"""Attribute of a log record that has the event's fields."""
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
    requests = logging.getLogger(ACCESS)
    requests.setLevel(logging.INFO if access else OFF)
    requests.propagate = False
    if access:
        lines = logging.StreamHandler()
        lines.setFormatter(Json())
        requests.handlers = [lines]
