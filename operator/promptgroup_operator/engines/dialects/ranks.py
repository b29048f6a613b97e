"""Determines the data-parallel ranks of a group's engines, and the APIs on which a router can select one. Does no I/O.

Each rank has its own KV cache. Without a rank in the request, an engine selects one by load alone, independent of the
cached prefixes.
"""

import re
from collections.abc import Mapping
from typing import Any

from promptgroup_contract.table import MOST_RANKS
from promptgroup_operator.api.prompt_group import EngineSpec
from promptgroup_operator.engines.dialects.dialect import Dialect
from promptgroup_operator.engines.dialects.flags import flag_of
from promptgroup_operator.world.pod_ranks import FLAGS, container_ranks, words_of

_RELEASE = re.compile(r"v?([0-9]{1,4})\.([0-9]{1,4})(?![0-9])")


def rank_args(dialect: Dialect, engine: EngineSpec) -> tuple[str, ...]:
    """Return the argument that sets the ranks of `spec.engine.dataParallelSize`; none for one rank."""
    size = engine.data_parallel_size or 1
    return (f"{dialect.rank_flag}={size}",) if size > 1 and dialect.rank_flag else ()


def ranks_problem(engine: EngineSpec, container: Mapping[str, Any]) -> str:
    """Return the problem that prevents an engine's ranks from being determined, with the remedy; empty without one.

    Args:
        engine: of the group's spec.
        container: the final engine container of its pods, which may be malformed.
    """
    size, flags = engine.data_parallel_size, [flag for flag in map(flag_of, words_of(container)) if flag in FLAGS]
    if size is not None and (given := [flag for flag in map(flag_of, engine.args) if flag in FLAGS]):
        return f"spec.engine.dataParallelSize and {given[0]} in spec.engine.args both set the ranks: remove one of them"
    if size is not None and len(flags) > (size > 1):
        return f"spec.engine.dataParallelSize and {flags[-1]} in spec.engine.template both set the ranks: remove one"
    ranks = container_ranks(container)
    if size is not None and ranks != size:
        return (
            f"spec.engine.dataParallelSize is {size}, and spec.engine.template replaces the arguments that say so: use "
            "spec.engine.args, or set the ranks in the template alone"
        )
    return f"the engine has {ranks} data-parallel ranks, and a router serves {MOST_RANKS}" if ranks > MOST_RANKS else ""


def unranked(dialect: Dialect, image: str) -> frozenset[str]:
    """Return the APIs, as routers name them, on which engines of an image ignore the rank in a request.

    A tag that names no release counts as one that ignores it, so that a router never relies on an unsupported feature.
    """
    name, _, tag = image.partition("@")[0].rpartition(":")
    release = _RELEASE.match(tag) if name.endswith(dialect.image) else None
    heeds = release is not None and (int(release[1]), int(release[2])) >= dialect.ranked_since
    return frozenset() if heeds else dialect.unranked
