"""Determines why engines cannot have the adapter of a group or a guest. Messages name the field and the remedy."""

from collections.abc import Collection

from promptgroup_operator.api.prompt_group import EngineSpec, PromptGroupSpec

NOT_SERVED = "the operator supports adapters with vLLM and SGLang only"


def own_problem(spec: PromptGroupSpec, ranks: int, flags: Collection[str] | None) -> str:
    """Return why the engines of a group cannot have adapters; empty if they can, or shall have none.

    Args:
        spec: of a group with engines of its own.
        ranks: data-parallel ranks of the engine.
        flags: arguments that the operator sets of its engine for adapters; None if they are not supported.
    """
    if spec.adapter is None and spec.engine.adapters is None:
        return ""
    field = "spec.adapter" if spec.adapter is not None else "spec.engine.adapters"
    if flags is None:
        return f"{field}: spec.engine.type is {spec.engine.type}, and {NOT_SERVED}: remove {field}"
    given = [flag for flag in (word.partition("=")[0].replace("_", "-") for word in spec.engine.args) if flag in flags]
    if given:
        return f"{field} is set, and {given[0]} in spec.engine.args would replace what it sets: remove the argument"
    if spec.engine.adapters is not None and ranks > 1:
        return (
            f"spec.engine.adapters is set, and the engine has {ranks} data-parallel ranks: {spec.engine.type} does not "
            "load adapters into several while it runs, so have one rank in each replica"
        )
    return ""


def guest_problem(host_name: str, guest: PromptGroupSpec, host: EngineSpec, *, supported: bool) -> str:
    """Return why the engines of a host cannot load a guest's adapter; empty if they can, or shall not."""
    if guest.adapter is None:
        return ""
    if not supported:
        return (
            f"spec.adapter: PromptGroup {host_name} has engines of type {host.type}, and {NOT_SERVED}: remove "
            "spec.adapter, or name another group in spec.engineFrom.promptGroup"
        )
    if host.adapters is None:
        return (
            f"spec.adapter: the engines of PromptGroup {host_name} load no adapters: set spec.engine.adapters there, "
            "or name another group in spec.engineFrom.promptGroup"
        )
    if guest.adapter.source.folder is not None and host.adapters.claim_name is None:
        return (
            f"spec.adapter.source.folder: PromptGroup {host_name} has no volume with adapters: name its "
            "PersistentVolumeClaim there in spec.engine.adapters.claimName"
        )
    return ""
