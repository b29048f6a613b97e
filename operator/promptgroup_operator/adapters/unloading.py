"""Decides which adapters an engine shall unload: those that no revision has had for some time.

A guest that is deleted is gone at once, so the host's passes compare the engine's own list with the routes. A revision
is in the route before its adapter is loaded. A route may be seen late, and requests may still run: so an adapter is
unloaded only once it was not wanted for UNWANTED.
"""

from collections.abc import Collection, Iterable, Mapping
from datetime import datetime, timedelta
from typing import NamedTuple

from promptgroup_operator.adapters.identity import is_ours

UNWANTED = timedelta(seconds=15)
"""Time after which an adapter that no revision has is unloaded."""


MOST_UNLOADED = 8
"""Adapters that are unloaded after one reading of an engine's list, so that an engine that lists many, or answers
slowly, does not hold up the engines of others."""


class LoadedModel(NamedTuple):
    """An entry of an engine's list of models."""

    name: str
    root: str
    """Path of an adapter."""
    parent: str
    """The model that an adapter belongs to; empty for the model itself."""


def unwanted_since(
    listed: Iterable[LoadedModel], wanted: Collection[str], before: Mapping[str, datetime], now: datetime
) -> dict[str, datetime]:
    """Return adapter → time since which it is loaded and no revision has it.

    Args:
        listed: the engine's list of models. What the operator did not load is left alone.
        wanted: names of the adapters that revisions have.
        before: the result of the previous look at the engine.
        now: the time.
    """
    return {
        model.name: before.get(model.name, now)
        for model in listed
        if model.parent and model.name not in wanted and is_ours(model.name, model.root)
    }


def to_unload(since: Mapping[str, datetime], now: datetime) -> list[str]:
    """Return the adapters whose time has come, at most MOST_UNLOADED of them: the rest is for later readings."""
    return sorted(name for name, at in since.items() if now - at >= UNWANTED)[:MOST_UNLOADED]
