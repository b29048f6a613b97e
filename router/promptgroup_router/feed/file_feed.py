"""Follows the routing table in a file: reads it again when the file changes or the process gets SIGHUP."""

import asyncio
import contextlib
import logging
from pathlib import Path

from promptgroup_contract.table import Group, TableError
from promptgroup_router.base.logs import fields
from promptgroup_router.base.steps import at_once, in_slices
from promptgroup_router.feed import table_file
from promptgroup_router.feed.publish import Publisher

log = logging.getLogger("promptgroup.table")

POLL_SECONDS = 1.0
"""Interval between checks of the file: notifications do not work on every file system that can be mounted."""

_Stamp = tuple[int, int, int]


class FileFeed:
    """A feed that follows one file."""

    def __init__(self, path: Path, publisher: Publisher) -> None:
        self._path = path
        self._publisher = publisher
        self._read: _Stamp | None = None
        """The file that was read last, good or bad; None to read it whatever it is."""
        self._problem = ""
        """The reason why the table of the file is not in use; empty while it is in use."""
        self._groups: dict[bytes, Group] = {}
        """Hash of a group's text in the file → the group."""
        self._wake = asyncio.Event()

    def reload(self) -> None:
        """Read the file at once, changed or not."""
        self._read = None
        self._wake.set()

    async def run(self) -> None:
        """Follow the file until cancelled."""
        while True:
            await self._look_in_slices()
            with contextlib.suppress(TimeoutError):
                async with asyncio.timeout(POLL_SECONDS):
                    await self._wake.wait()
            self._wake.clear()

    def look(self) -> None:
        """Read the file if it has changed; if it cannot be read or holds no table, log that and use the last one.

        The table in use is confirmed only while it is that of the file.
        """
        if self._has_changed():
            try:
                content = table_file.content_of(self._path)
                table = at_once(table_file.parse_steps(content, str(self._path), self._groups))
            except (OSError, TableError) as error:
                self._refuse(error)
                return
            self._problem = ""
            self._publisher.publish(table, "file")
            self._publisher.confirm()

    async def _look_in_slices(self) -> None:
        """Do the same as `look` in steps, between which requests are served."""
        if self._has_changed():
            try:
                content = await asyncio.to_thread(table_file.content_of, self._path)
                steps = table_file.parse_steps(content, str(self._path), self._groups)
                table = await in_slices(steps, lasting=True)
            except (OSError, TableError) as error:
                self._refuse(error)
                return
            self._problem = ""
            await self._publisher.publish_in_slices(table, "file")
            self._publisher.confirm()

    def _has_changed(self) -> bool:
        """Return True if the file is to be read; confirm its table where it is not."""
        try:
            status = self._path.stat()
        except OSError as error:
            self._refuse(error)
            return False
        stamp = (status.st_mtime_ns, status.st_ino, status.st_size)
        if stamp == self._read:
            if not self._problem:
                self._publisher.confirm()
            return False
        self._read = stamp
        return True

    def _refuse(self, error: OSError | TableError) -> None:
        if isinstance(error, OSError):
            self._read = None  # such as the lack of a free descriptor, independent of the file: read it again
        self._failed(str(error))

    def _failed(self, problem: str) -> None:
        if problem == self._problem:
            return
        self._problem = problem
        self._publisher.failed("file")
        log.error(
            "the table cannot be read; the router keeps the previous one, if there is any",
            extra=fields(file=self._path, problem=problem),
        )
