"""Decides how many data-parallel ranks an engine has, and which APIs let a router name one. Does no I/O.

Each rank has a KV cache of its own. An engine that is not told a rank takes one by load alone, without a look at what
is cached. Flags are those of vLLM 0.32 and SGLang 0.5.23; none of them means something else to the other engine.
"""

import re
from collections.abc import Iterable, Mapping
from typing import Any

from promptgroup_contract.table import MOST_RANKS
from promptgroup_operator.api.prompt_group import EngineSpec
from promptgroup_operator.engines.dialects.dialect import Dialect
from promptgroup_operator.engines.dialects.flags import flag_of, number

FLAGS = ("--data-parallel-size", "-dp", "--dp-size", "--dp")
"""Flags that say how many ranks an engine has."""
ONE_A_SERVER = frozenset(
    {"--data-parallel-rank", "-dpn", "--data-parallel-external-lb", "-dpe", "--data-parallel-multi-port-external-lb"}
)
"""Flags of vLLM by which each server has one rank, of those that it shares with others."""
_RELEASE = re.compile(r"v?([0-9]{1,4})\.([0-9]{1,4})(?![0-9])")


def ranks_of(words: Iterable[str]) -> int:
    """Return the ranks that a command line gives an engine; 1 where it says nothing that can be read."""
    words = list(words)
    return 1 if ONE_A_SERVER.intersection(map(flag_of, words)) else number(words, FLAGS)


def pod_ranks(container: Mapping[str, Any]) -> int:
    """Return the ranks of the engine in a container of any shape, by its command and its arguments."""
    return ranks_of(_words(container))


def wanted_ranks(engine: EngineSpec) -> int:
    """Return the ranks that a spec asks for, by its field or by its arguments."""
    return engine.data_parallel_size or ranks_of(engine.args)


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
    size, flags = engine.data_parallel_size, [flag for flag in map(flag_of, _words(container)) if flag in FLAGS]
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


def _words(container: Mapping[str, Any]) -> list[str]:
    parts = (container.get("command"), container.get("args"))
    return [word for part in parts if isinstance(part, list) for word in part if isinstance(word, str)]
