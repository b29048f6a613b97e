"""The arguments by which an engine's processes on several nodes find each other, and the problems that prevent it."""

import math
import re
from collections.abc import Mapping
from typing import Any

from promptgroup_operator.api.prompt_group import EngineSpec
from promptgroup_operator.engines.dialects.dialect import Dialect
from promptgroup_operator.engines.dialects.flags import flag_of, number
from promptgroup_operator.world.pod_ranks import argument_ranks

LONGEST_NAME = 38
"""Maximum length of a group's name. The StatefulSet of a leader's workers is named `<group>-<8 digits>-<ordinal>`, and
Kubernetes writes that name and a hash of 10 characters in a label, which has at most 63."""
_SERVICE_NAME = re.compile(r"[a-z]([-a-z0-9]*[a-z0-9])?", re.ASCII)
"""Names of Services (RFC 1035): the controller makes one with the name of the LeaderWorkerSet."""


def is_several(engine: EngineSpec) -> bool:
    """Return True if a replica has more than one node."""
    return (engine.nodes or 1) > 1


def node_args(speech: Dialect, engine: EngineSpec) -> tuple[str, ...]:
    """Return the arguments by which the processes of a replica find each other; empty for one node."""
    if not is_several(engine):
        return ()
    return tuple(arg.format(nodes=engine.nodes) for arg in speech.node_args)


def problem(speech: Dialect, engine: EngineSpec, name: str, container: Mapping[str, Any]) -> str:
    """Return the problem that prevents the engine from running on several nodes, with the remedy; empty without one.

    Args:
        speech: the engine's dialect.
        engine: of the group's spec.
        name: the group's name.
        container: the final engine container of the leader, which may be malformed.
    """
    if not is_several(engine):
        return ""
    if len(name) > LONGEST_NAME or not _SERVICE_NAME.fullmatch(name):
        return (
            f"spec.engine.nodes is above 1, and the group's name does not fit a LeaderWorkerSet: create a group whose "
            f"name begins with a letter, has letters, digits and hyphens only, and at most {LONGEST_NAME} characters"
        )
    if taken := sorted({flag_of(arg) for arg in speech.node_args} & {flag_of(arg) for arg in engine.args}):
        return f"spec.engine.nodes and {taken[0]} in spec.engine.args both lay out the nodes: remove one of them"
    args = container.get("args")
    args = [arg for arg in args if isinstance(arg, str)] if isinstance(args, list) else []
    if any(arg not in args for arg in node_args(speech, engine)):
        return (
            f"spec.engine.nodes is {engine.nodes}, and spec.engine.template replaces the arguments that say so: use "
            "spec.engine.args"
        )
    if argument_ranks(args) > 1:
        return (
            "spec.engine.nodes is above 1, and spec.engine.args set data-parallel ranks: remove one of them, since "
            "ranks on several nodes are not supported"
        )
    parts = math.prod(number(args, flags) for flags in speech.split_flags)
    if parts % (engine.nodes or 1):
        return (
            f"spec.engine.nodes is {engine.nodes}, and the engine's arguments split the model into "
            f"{parts} {'part' if parts == 1 else 'parts'}, which cannot be divided among the nodes evenly: set "
            f"{speech.split_flags[0][0]} in spec.engine.args"
        )
    return ""
