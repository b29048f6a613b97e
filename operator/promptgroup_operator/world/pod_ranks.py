"""Reads from a container how many data-parallel ranks its engine has. Does no I/O.

Each rank has a KV cache of its own. Flags are those of vLLM 0.32 and SGLang 0.5.23; none of them means something else
to the other engine.
"""

import re
from collections.abc import Iterable, Iterator, Mapping
from typing import Any

FLAGS = ("--data-parallel-size", "-dp", "--dp-size", "--dp")
"""Flags that say how many ranks an engine has."""
ONE_A_SERVER = frozenset(
    {"--data-parallel-rank", "-dpn", "--data-parallel-external-lb", "-dpe", "--data-parallel-multi-port-external-lb"}
)
"""Flags of vLLM by which each server has one rank, of those that it shares with others."""
PART_OF_THEM = frozenset({"--data-parallel-hybrid-lb", "-dph"})
"""Flags of vLLM by which a server has those ranks that run beside it, and the flags that say how many."""
LOCAL = ("--data-parallel-size-local", "-dpl")
_NUMBER = re.compile("[1-9][0-9]{0,4}")


def ranks_of(words: Iterable[str]) -> int:
    """Return the ranks that a command line gives an engine; 1 where it says nothing that can be read.

    As in engines, the last flag wins, `_` is `-`, and the value may be a word of its own.
    """
    result: dict[tuple[str, ...], int] = {FLAGS: 1, LOCAL: 1}
    size: tuple[str, ...] = FLAGS
    following = iter(words)
    for word in following:
        flag, equals, value = word.partition("=")
        flag = flag.replace("_", "-")
        if flag in ONE_A_SERVER:
            return 1
        if flag in PART_OF_THEM:
            size = LOCAL
        for flags in result:
            if flag in flags:
                value = value if equals else next(following, "")
                result[flags] = int(value) if _NUMBER.fullmatch(value) else 1
    return result[size]


def pod_ranks(container: Mapping[str, Any]) -> int:
    """Return the ranks of the engine in a container of any shape, by its command and its arguments."""
    return ranks_of(words_of(container))


def words_of(container: Mapping[str, Any]) -> Iterator[str]:
    """Yield the words of the command and of the arguments of a container of any shape."""
    for part in (container.get("command"), container.get("args")):
        if isinstance(part, list):
            yield from (word for word in part if isinstance(word, str))
