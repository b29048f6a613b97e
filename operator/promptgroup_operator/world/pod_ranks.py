"""Reads from a container how many data-parallel ranks its engine has. Does no I/O.

Each rank has its own KV cache. The flags are those of vLLM 0.32 and SGLang 0.5.23; no flag of one engine has another
meaning in the other.
"""

import re
from collections.abc import Iterable, Iterator, Mapping
from typing import Any

FLAGS = ("--data-parallel-size", "-dp", "--dp-size", "--dp")
"""Flags that set the number of ranks of an engine."""
ONE_A_SERVER = frozenset(
    {"--data-parallel-rank", "-dpn", "--data-parallel-external-lb", "-dpe", "--data-parallel-multi-port-external-lb"}
)
"""Flags of vLLM with which each server runs exactly one rank of a larger deployment."""
PART_OF_THEM = frozenset({"--data-parallel-hybrid-lb", "-dph"})
"""Flags of vLLM with which a server serves only its local ranks; LOCAL has the flags that set their number."""
LOCAL = ("--data-parallel-size-local", "-dpl")
_NUMBER = re.compile("[1-9][0-9]{0,4}")


def argument_ranks(words: Iterable[str]) -> int:
    """Return the number of ranks that a command line sets; 1 where it sets none that can be parsed.

    As in engines, the last flag wins, `_` equals `-`, and the value may be a separate argument.
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


def container_ranks(container: Mapping[str, Any]) -> int:
    """Return the ranks of the engine in a container, from its command and arguments; the container may be malformed."""
    return argument_ranks(words_of(container))


def words_of(container: Mapping[str, Any]) -> Iterator[str]:
    """Yield the words of a container's command and arguments; the container may be malformed."""
    for part in (container.get("command"), container.get("args")):
        if isinstance(part, list):
            yield from (word for word in part if isinstance(word, str))
