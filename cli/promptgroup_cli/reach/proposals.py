"""Decides which prompts are proposed as groups, and on whose replicas. Does no I/O."""

from collections.abc import Iterable, Mapping, Sequence
from typing import Any

from promptgroup_cli.base.errors import InputError
from promptgroup_cli.reach.discovered import SamplePrompt
from promptgroup_router.undeclared.unmatched import Document

MOST = 64
"""Groups that are proposed at a time."""


def worth_a_guest(listed: Iterable[Document], sample: Mapping[str, SamplePrompt]) -> list[Document]:
    """Return the prefixes whose text is in the sample, in their order.

    Of two of which one begins with the other only the first is proposed: the requests of both would match it.

    Raises:
        InputError: there is none.
    """
    documents: list[Document] = []
    texts: list[str] = []
    for prefix in listed:
        prompt = sample.get(str(prefix["hash"]))
        if prompt is None or not prompt.system or len(documents) >= MOST:
            continue
        text = prompt.tools + prompt.system
        if not any(text.startswith(other) or other.startswith(text) for other in texts):
            texts.append(text)
            documents.append(prefix)
    if not documents:
        raise InputError(
            "there is no text of a prefix of the list: give requests of today with --sample FILE, as clients send them"
        )
    return documents


def host_of(groups: Sequence[Mapping[str, Any]], model: str) -> str:
    """Return the group whose replicas may serve a prompt of a model; empty if none, or more than one, stands out.

    A group without a prompt of its own exists for that purpose.

    Args:
        groups: PromptGroups of the namespace.
        model: as requests name it.
    """
    hosts = [
        str(group["metadata"]["name"])
        for group in groups
        if "engineFrom" not in group["spec"]
        and "prompt" not in group["spec"]
        and model in (group["spec"].get("model"), *group["spec"].get("modelAliases", ()))
    ]
    return hosts[0] if len(hosts) == 1 else ""


def guest_name(prefix: Document, name: str) -> str:
    """Return the name of one group of several, distinguished by its prefix."""
    return f"{name[:40].rstrip('-')}-{str(prefix['hash'])[:8]}"
