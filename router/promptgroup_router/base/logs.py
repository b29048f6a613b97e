"""Log lines: an event and its fields, plain or as JSON. Never bodies, prompt text or header values."""

import logging
import time

import orjson

FIELDS = "fields"
"""Name of the attribute that carries an event's fields."""


def fields(**values: object) -> dict[str, object]:
    """`extra` for a log call: `log.info("event", extra=fields(group=...))`."""
    return {FIELDS: values}


class Plain(logging.Formatter):
    """`time LEVEL logger event key=value …`."""

    def format(self, record: logging.LogRecord) -> str:
        """One line."""
        pairs = "".join(f" {key}={_quoted(str(value))}" for key, value in getattr(record, FIELDS, {}).items())
        return super().format(record) + pairs


def _quoted(value: str) -> str:
    """A value that cannot be taken for more than one."""
    return value if value and value.isprintable() and not set(value) & set(' ="') else orjson.dumps(value).decode()


class Json(logging.Formatter):
    """One JSON object a line."""

    def format(self, record: logging.LogRecord) -> str:
        """One line."""
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


def configure(level: str, form: str) -> None:
    """Send log lines to standard error."""
    handler = logging.StreamHandler()
    handler.setFormatter(Json() if form == "json" else Plain("%(asctime)s %(levelname)-7s %(name)s %(message)s"))
    logging.basicConfig(level=level, handlers=[handler])
