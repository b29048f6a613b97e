"""The access log of this process, turned on for a while."""

import logging
from collections.abc import Iterator
from contextlib import contextmanager

from promptgroup_router.base.logs import ACCESS, FIELDS


@contextmanager
def access_lines() -> Iterator[list[tuple[str, dict]]]:
    """Collect the lines as they come: event and fields."""
    found: list[tuple[str, dict]] = []
    logger, handler = logging.getLogger(ACCESS), logging.Handler()
    handler.emit = lambda line: found.append((line.getMessage(), getattr(line, FIELDS)))  # type: ignore[method-assign]
    before = logger.handlers, logger.propagate
    logger.handlers, logger.propagate = [handler], False
    logger.setLevel(logging.INFO)
    try:
        yield found
    finally:
        logger.setLevel(logging.CRITICAL + 1)
        logger.handlers, logger.propagate = before
