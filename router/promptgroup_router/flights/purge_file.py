"""Stores purges on disk: a store may still have, or get again, answers that were purged before a restart."""

import logging
from pathlib import Path

from promptgroup_router.base.logs import fields
from promptgroup_router.feed.table_file import replace_file
from promptgroup_router.response_cache.purge import Purges

MOST_BYTES = 1 << 20
"""Most bytes that are read: three times the size of the most purges that are recorded."""

log = logging.getLogger("promptgroup.store")


class PurgeFile:
    """The purges of a router in a file."""

    def __init__(self, path: Path) -> None:
        """Store the path, without reading or writing."""
        self._path = path

    def restore(self, purges: Purges, now: float) -> None:
        """Add the purges in the file; one that cannot be used is logged.

        Args:
            purges: the recorded purges of this process.
            now: seconds since the epoch.
        """
        try:
            with self._path.open("rb") as file:
                purges.restore(file.read(MOST_BYTES), now)
        except FileNotFoundError:
            return
        except (OSError, ValueError) as error:
            log.warning("copy of the purges not read", extra=fields(file=self._path, problem=error))

    def save(self, purges: Purges) -> None:
        """Replace the file."""
        try:
            replace_file(self._path, [purges.encode()])
        except OSError as error:
            log.warning("copy of the purges not written", extra=fields(file=self._path, problem=error))
