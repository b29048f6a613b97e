"""Decides how many data-parallel ranks a group's engines have, and which APIs let a router name one. Does no I/O.

Each rank has a KV cache of its own. An engine that is not told a rank takes one by load alone, without a look at what
is cached.
"""

import re
from collections.abc import Mapping
from typing import Any

from promptgroup_contract.table import MOST_RANKS
from promptgroup_operator.api.prompt_group import EngineSpec
from promptgroup_operator.engines.dialects.dialect import Dialect
from promptgroup_operator.engines.dialects.flags import flag_of
from promptgroup_operator.world.pod_ranks import FLAGS, pod_ranks, words_of

_RELEASE = re.compile(r"v?([0-9]{1,4})\.([0-9]{1,4})(?![0-9])")


def rank_args(dialect: Dialect, engine: EngineSpec) -> tuple[str, ...]:
    """Return the argument by which an engine has the ranks that its field asks for; none for one rank."""
    size = engine.data_parallel_size or 1
    return (f"{dialect.rank_flag}={size}",) if size > 1 and dialect.rank_flag else ()


def ranks_problem(engine: EngineSpec, container: Mapping[str, Any]) -> str:
    """Return what keeps an engine's ranks from being known, with the way out; empty if nothing does.

    Args:
        engine: of the group's spec.
        container: the engine's as its pods will have it, of any shape.
    """
    size, flags = engine.data_parallel_size, [flag for flag in map(flag_of, words_of(container)) if flag in FLAGS]
    if size is not None and (given := [flag for flag in map(flag_of, engine.args) if flag in FLAGS]):
        return f"spec.engine.dataParallelSize and {given[0]} in spec.engine.args both set the ranks: remove one of them"
    if size is not None and len(flags) > (size > 1):
        return f"spec.engine.dataParallelSize and {flags[-1]} in spec.engine.template both set the ranks: remove one"
    ranks = pod_ranks(container)
    if size is not None and ranks != size:
        return (
            f"spec.engine.dataParallelSize is {size}, and spec.engine.template replaces the arguments that say so: use "
            "spec.engine.args, or set the ranks in the template alone"
        )
    return f"the engine has {ranks} data-parallel ranks, and a router serves {MOST_RANKS}" if ranks > MOST_RANKS else ""


def unranked(dialect: Dialect, image: str) -> frozenset[str]:
    """Return the APIs, as routers name them, on which engines of an image choose the rank whatever a request says.

    A tag that names no release is taken for one that does not heed it: a router then expects less than there may be.
    """
    name, _, tag = image.partition("@")[0].rpartition(":")
    release = _RELEASE.match(tag) if name.endswith(dialect.image) else None
    heeds = release is not None and (int(release[1]), int(release[2])) >= dialect.ranked_since
    return frozenset() if heeds else dialect.unranked
