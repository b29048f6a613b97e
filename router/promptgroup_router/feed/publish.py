"""Installs tables: replaces the one in use, writes a copy to disk, logs what changed."""

import asyncio
import gc
import logging
from collections.abc import Callable, Generator, Sequence
from pathlib import Path

from promptgroup_contract.table import RoutingTable, TableError
from promptgroup_router.base.logs import fault, fields
from promptgroup_router.base.steps import at_once, in_slices
from promptgroup_router.feed import table_file
from promptgroup_router.feed.table_file import encode_steps
from promptgroup_router.rings.aliases import AliasConflict
from promptgroup_router.rings.building import unchanged_steps
from promptgroup_router.rings.index import ClaimConflict
from promptgroup_router.rings.names import NameConflict
from promptgroup_router.routing.sound_part import sound_part
from promptgroup_router.routing.state import Conflict, RouterState

log = logging.getLogger("promptgroup.table")

COLLECT_SECONDS = 3600.0
"""Time between collections that visit everything: each holds the loop for a tenth of a second."""


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
        """Replace the table in use, as `publish` does; all that takes long is done while requests have their turn."""
        changed = await in_slices(self.install_steps(table, source), lasting=True)
        self._collect_seldom()
        if changed and self._copy is not None:
            await self._keep_copy(self._copy)

    def publish(self, table: RoutingTable, source: str) -> None:
        """Replace the table in use.

        A group that cannot be installed is served with its last good value, or left out; the others are served.
        """
        changed = at_once(self.install_steps(table, source))
        if changed and self._copy is not None:
            self._write(self._copy, at_once(encode_steps(self._state.index.table)))

    async def _keep_copy(self, copy: Path) -> None:
        """Write a copy: pieces in slices, since encoding holds the loop wherever it runs, and the disk in a thread."""
        content = await in_slices(encode_steps(self._state.index.table))
        await asyncio.to_thread(self._write, copy, content)

    @staticmethod
    def _write(copy: Path, content: Sequence[bytes]) -> None:
        try:
            table_file.replace_file(copy, content)
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
        at_once(self.install_steps(table, "copy"))
        return self._state.index.table

    def install_steps(self, given: RoutingTable, source: str) -> Generator[None, None, bool]:
        """Replace the table in use. Return False where the source has given the same one before."""
        last = self._state.index.table
        table = yield from unchanged_steps(given, last)
        if self._state.loaded and table == self._given:
            return False
        self._given = table
        conflicts, error = yield from self._tried(table, source)
        if error is not None:
            table, faults = yield from sound_part(table, last)
            for label, fault_of_group in faults.items():
                self.failed(source)
                log.error(
                    "the router fails at a group: its last good value stays in use, or it is not served",
                    extra=fault(fault_of_group, group=label),
                )
            conflicts, error = yield from self._tried(table, source)
        del last
        if error is not None:
            self.failed(source)
            log.error("the router fails at the table: the last good one stays in use", extra=fault(error))
            return self._state.loaded
        self._installed()
        yield from self._state.release_steps()
        revisions, ready = 0, 0
        for group in table.groups:
            revisions += len(group.revisions)
            ready += sum(slot.state == "Ready" for revision in group.revisions for slot in revision.slots)
            yield
        log.info(
            "table",
            extra=fields(
                source=source, version=table.version, groups=len(table.groups), revisions=revisions, ready=ready
            ),
        )
        for conflict in conflicts:
            result, subject = _described(conflict)
            log.warning(result, extra=fields(group=conflict.group, keeper=conflict.keeper, **subject))
            yield
        return True

    def _tried(
        self, table: RoutingTable, source: str
    ) -> Generator[None, None, tuple[tuple[Conflict, ...], Exception | None]]:
        """Return the new conflicts of a table that is served from here on, or the error by which it is not."""
        try:
            prepared = yield from self._state.prepare(table, self._clock())
            return self._state.install(table, source, self._clock(), prepared), None
        except Exception as error:  # noqa: BLE001 # a fault of the router at one team's group, which no other must feel
            return (), error


def _described(conflict: Conflict) -> tuple[str, dict[str, str]]:
    """Return the log message for a conflict, and its fields beside the groups."""
    match conflict:
        case AliasConflict(alias=alias):
            return "an alias of a model is a name that another group keeps", {"alias": alias}
        case NameConflict(name=name):
            return "a group, or its model, has a name that an older group of another namespace keeps", {"name": name}
        case ClaimConflict(fingerprint=fingerprint):
            return "two groups declare one prompt: the older group keeps it", {"fingerprint": fingerprint}
