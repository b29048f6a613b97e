"""Decides if the prompts that are warm on a replica leave enough of the KV cache for sessions.

The tokens of each revision count on every replica on which it is warm, by the PromptRoutes of a host and of its guests.
Engines share common prefixes, so the sum is an upper bound. Does no I/O and reads no clock.
"""

from collections import Counter
from collections.abc import Iterable, Mapping
from dataclasses import dataclass

from promptgroup_contract.table import SlotState
from promptgroup_operator.sizing.limits import PROMPTS
from promptgroup_operator.world.snapshot import Manifest, Pod

NAMED = 3
"""Maximum number of groups that a message names."""


@dataclass(frozen=True, slots=True)
class PromptRoom:
    """The tokens of the prompts that are warm on a host's replicas."""

    by_pod: Mapping[str, int]
    """Pod → total tokens of the prompts."""
    by_group: Mapping[str, int]
    """Group → tokens of its revisions on one replica."""


def taken(routes: Iterable[Manifest]) -> PromptRoom:
    """Return the tokens of prompts, by the PromptRoutes of a host and of its guests."""
    by_pod, by_group = Counter[str](), Counter[str]()
    for route in routes:
        for revision in route.get("spec", {}).get("revisions", []):
            tokens = revision.get("tokens", 0)
            ready = (slot for slot in revision.get("slots", []) if slot.get("state") == SlotState.READY)
            pods = [slot["pod"] for slot in ready if slot.get("pod")]
            if tokens and pods:
                by_group[route["metadata"]["name"]] += tokens
                by_pod.update(dict.fromkeys(pods, tokens))
    return PromptRoom(by_pod, by_group)


def is_full(pod: Pod) -> bool:
    """Return True if prompts take more than the permitted share of a replica's KV cache."""
    return pod.crowd > PROMPTS * pod.measured.kv_tokens > 0


def fullest(pods: Iterable[Pod]) -> Pod | None:
    """Return the replica whose prompts take the largest share of its cache; None if no cache has a measured size."""
    measured = [pod for pod in pods if pod.measured.kv_tokens and pod.crowd]
    return max(measured, key=lambda pod: (pod.crowd / pod.measured.kv_tokens, pod.name), default=None)


def describe(pod: Pod, by_group: Mapping[str, int]) -> str:
    """Describe the share of a replica's cache that prompts take, for a message."""
    share = round(100 * pod.crowd / pod.measured.kv_tokens)
    first = sorted(by_group.items(), key=lambda item: (-item[1], item[0]))[:NAMED]
    largest = ", ".join(f"{name} ({tokens:,})" for name, tokens in first)
    groups = f"{len(by_group)} group{'s'[: len(by_group) != 1]}"
    cache = f"{pod.measured.kv_tokens:,} tokens of KV cache of pod {pod.name}"
    taken_of = f"the prompts of {groups} take {pod.crowd:,} of the {cache} ({share} %)"
    return f"{taken_of}; the largest are those of {largest}"
