"""Installs tables: replaces the one in use, writes a copy to disk, logs what changed."""

import asyncio
import contextlib
import gc
import logging
from collections.abc import Callable, Generator
from pathlib import Path
from typing import TypeVar

from promptgroup_contract.table import RoutingTable, TableError
from promptgroup_router.base.logs import fault, fields
from promptgroup_router.feed import table_file
from promptgroup_router.rings.aliases import AliasConflict
from promptgroup_router.rings.index import ClaimConflict
from promptgroup_router.rings.names import NameConflict
from promptgroup_router.routing.sound_part import sound_part
from promptgroup_router.routing.state import Conflict, Prepared, RouterState

log = logging.getLogger("promptgroup.table")

SLICE_SECONDS = 0.005
"""Time for which work in steps holds the event loop before others have their turn."""
COLLECT_SECONDS = 3600.0
"""Time between collections that visit everything: each holds the loop for a tenth of a second."""

_Made = TypeVar("_Made")


async def in_slices(steps: Generator[None, None, _Made], *, lasting: bool = False) -> _Made:
    """Run a generator to its end, and let others have their turn between its steps. Return what it returns.

    Args:
        steps: the generator.
        lasting: whether what it makes lives long. Garbage collections do not visit it then: of a table with 8,000
            replicas each would hold the loop for 50 ms.
    """
    clock = asyncio.get_running_loop().time
    until = clock() + SLICE_SECONDS
    while True:
        try:
            next(steps)
        except StopIteration as end:
            if lasting:
                gc.freeze()
            made: _Made = end.value
            return made
        if clock() >= until:
            if lasting:
                gc.freeze()
            await asyncio.sleep(0)
            until = clock() + SLICE_SECONDS


class Publisher:
    """The receiver of tables from a source."""

    def __init__(
        self,
        state: RouterState,
        clock: Callable[[], float],
        copy: Path | None,
        installed: Callable[[], None] = lambda: None,
    ) -> None:
        """Begin without a table.

        Args:
            state: gets the tables.
            clock: monotonic seconds.
            copy: file for the last good table, if there is one.
            installed: called after each table.
        """
        self._installed = installed
        self._state = state
        self._clock = clock
        self._copy = copy
        self._given: RoutingTable | None = None
        self._collected = clock()

    async def publish_in_slices(self, table: RoutingTable, source: str) -> None:
        """Replace the table in use, as `publish` does; its index is built while requests have their turn."""
        if self._state.loaded and table == self._given:
            return
        prepared = None
        # a fault is found again, and told of its group, where the index is built at once
        with contextlib.suppress(Exception):
            prepared = await in_slices(self._state.prepare(table, self._clock()), lasting=True)
        self._install(table, source, prepared)
        self._collect_seldom()
        if self._copy is not None and self._state.loaded:
            # encoding a large table takes a while, and the disk may take longer
            await asyncio.to_thread(self._write, self._copy, self._state.index.table)

    def publish(self, table: RoutingTable, source: str) -> None:
        """Replace the table in use.

        A group that the router fails at keeps its last good value, or is left out; the others are served.
        """
        if self._state.loaded and table == self._given:
            return
        self._install(table, source)
        if self._copy is not None and self._state.loaded:
            self._write(self._copy, self._state.index.table)

    @staticmethod
    def _write(copy: Path, table: RoutingTable) -> None:
        try:
            table_file.write(copy, table)
        except OSError as error:
            log.warning("copy of the table not written", extra=fields(file=copy, problem=error))

    def _collect_seldom(self) -> None:
        """Look for garbage in all that collections do not visit, which is none unless something refers to itself."""
        now = self._clock()
        if now - self._collected >= COLLECT_SECONDS:
            self._collected = now
            gc.unfreeze()
            gc.collect()
        gc.freeze()

    def confirm(self) -> None:
        """Record that the source still has the same table."""
        self._state.confirmed = self._clock()

    def failed(self, source: str) -> None:
        """Count a table or route that cannot be read."""
        self._state.metrics.table_errors.add(source)

    def restore(self) -> RoutingTable | None:
        """Install the copy on disk and return it; None if there is no good one."""
        if self._copy is None:
            return None
        try:
            table = table_file.read(self._copy)
        except FileNotFoundError:
            return None
        except (OSError, TableError) as error:
            self.failed("copy")
            log.warning("copy of the table not read", extra=fields(file=self._copy, problem=error))
            return None
        self._install(table, "copy")
        return self._state.index.table

    def _install(self, given: RoutingTable, source: str, prepared: Prepared | None = None) -> None:
        self._given = given
        last = self._state.index.table
        table, conflicts, error = given, *self._tried(given, source, prepared)
        if error is not None:
            table, faults = sound_part(given, last)
            for label, fault_of_group in faults.items():
                self.failed(source)
                log.error(
                    "the router fails at a group: its last good value stays in use, or it is not served",
                    extra=fault(fault_of_group, group=label),
                )
            conflicts, error = self._tried(table, source)
        if error is not None:
            self.failed(source)
            log.error("the router fails at the table: the last good one stays in use", extra=fault(error))
            return
        self._installed()
        revisions = [revision for group in table.groups for revision in group.revisions]
        ready = sum(slot.state == "Ready" for revision in revisions for slot in revision.slots)
        log.info(
            "table",
            extra=fields(
                source=source, version=table.version, groups=len(table.groups), revisions=len(revisions), ready=ready
            ),
        )
        for conflict in conflicts:
            text, subject = _told(conflict)
            log.warning(text, extra=fields(group=conflict.group, keeper=conflict.keeper, **subject))

    def _tried(
        self, table: RoutingTable, source: str, prepared: Prepared | None = None
    ) -> tuple[tuple[Conflict, ...], Exception | None]:
        """Return the new conflicts of a table that is served from here on, or the error by which it is not."""
        try:
            return self._state.install(table, source, self._clock(), prepared), None
        except Exception as error:  # noqa: BLE001 # a fault of the router at one team's group, which no other must feel
            return (), error


def _told(conflict: Conflict) -> tuple[str, dict[str, str]]:
    """Return what the log says of a conflict, and its fields beside the groups."""
    match conflict:
        case AliasConflict(alias=alias):
            return "an alias of a model is a name that another group keeps", {"alias": alias}
        case NameConflict(name=name):
            return "a group, or its model, has a name that an older group of another namespace keeps", {"name": name}
        case ClaimConflict(fingerprint=fingerprint):
            return "two groups declare one prompt: the older group keeps it", {"fingerprint": fingerprint}
