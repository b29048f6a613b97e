"""Weights that engines load, in the spec of a PromptGroup: those of the model, and of LoRA adapters."""

import enum
from typing import Annotated, Literal

from pydantic import Field

from promptgroup_operator.api.model import ApiModel, ObjectName, rule, rules

_FOLDER = "[A-Za-z0-9_][A-Za-z0-9._-]*"
"""A folder's name. It begins with no dot, so that one folder has one path."""


class AdapterSource(ApiModel):
    """The weights of an adapter, in the format of PEFT.

    Weights that are replaced under one name are not a release: engines would serve cached KV of the old ones. Put new
    weights into a folder or repository of another name.
    """

    model_config = rules(
        rule(
            "has(self.folder) != has(self.huggingFace)",
            "adapter.source needs exactly one of folder (on the volume of engine.adapters) and huggingFace (a "
            "repository)",
            holds=lambda source: (source.folder is None) != (source.hugging_face is None),
        ),
    )

    folder: Annotated[str, Field(max_length=512, pattern=f"^{_FOLDER}(/{_FOLDER})*$")] | None = None
    """Folder with adapter_config.json on the volume that engine.adapters.claimName names, such as support/v3."""
    hugging_face: Annotated[str, Field(max_length=193, pattern=f"^{_FOLDER}/{_FOLDER}$")] | None = None
    """Repository of Hugging Face, such as example/support-v3. Engines load its default branch when they start."""


ADAPTER_NAME = "[A-Za-z0-9]([A-Za-z0-9._-]*[A-Za-z0-9])?"
"""Pattern of the name of an adapter."""
LONGEST_ADAPTER_NAME = 200


class AdapterSpec(ApiModel):
    """A LoRA adapter of the model, by whose name clients ask for it."""

    name: Annotated[str, Field(min_length=1, max_length=LONGEST_ADAPTER_NAME, pattern=f"^{ADAPTER_NAME}$")]
    """Name of the adapter, as clients send it in `model`. It cannot be changed. Engines serve each revision under a
    name of its own, which answers have in `model`: this one, a hyphen and eight hex digits; with SGLang behind the
    model's name and a colon."""
    source: AdapterSource
    """Its weights. Another source is another revision, which is released as a new prompt is."""


class EngineAdaptersSpec(ApiModel):
    """Room of the engines for LoRA adapters.

    It is for the group's own, and for those of PromptGroups whose engineFrom names the group, which are loaded and
    unloaded while the engines run.
    """

    model_config = rules(
        rule(
            "self.maxActive <= self.maxInMemory",
            "engine.adapters.maxInMemory is less than maxActive, whose adapters are in memory, too: raise it",
            ".maxInMemory",
            holds=lambda adapters: adapters.max_active <= adapters.max_in_memory,
        ),
    )

    claim_name: ObjectName | None = None
    """PersistentVolumeClaim with the adapters' folders. All replicas mount it read-only."""
    max_active: Annotated[int, Field(ge=1, le=256)] = 4
    """Adapters whose requests run at the same time on one replica; requests for further ones wait. Each takes memory of
    the GPU."""
    max_in_memory: Annotated[int, Field(ge=1, le=4096)] = 32
    """Adapters that a replica keeps in main memory, those that are active included. Further ones are read again;
    SGLang then unloads the least recently used one, whose prompts are cold when it is read again."""
    max_rank: Literal[8, 16, 32, 64, 128, 256, 320, 512] = 16
    """Highest rank of an adapter."""


_INSIDE = r"^[A-Za-z0-9_][A-Za-z0-9._-]*(/[A-Za-z0-9_][A-Za-z0-9._-]*)*$"
"""Pattern of a folder within a volume: relative, without `..`."""


class PullPolicy(enum.StrEnum):
    """The rule by which nodes pull an image, in the words of Kubernetes."""

    ALWAYS = "Always"
    IF_NOT_PRESENT = "IfNotPresent"
    NEVER = "Never"


class WeightsSpec(ApiModel):
    """A volume with the weights, which is mounted read-only at /weights; the engine loads the model from there.

    Without it the engine gets `spec.model` as the model's name, and downloads it.
    """

    model_config = rules(
        rule(
            "has(self.image) != has(self.claimName)",
            "engine.weights needs exactly one of image (an image volume) and claimName (a PersistentVolumeClaim)",
            holds=lambda weights: (weights.image is None) != (weights.claim_name is None),
        ),
        rule(
            "!has(self.pullPolicy) || has(self.image)",
            "engine.weights.pullPolicy is about images, and claimName is set: remove one of the two",
            ".pullPolicy",
            holds=lambda weights: weights.pull_policy is None or weights.image is not None,
        ),
        rule(
            "!has(self.prefetch) || !self.prefetch || has(self.image)",
            "engine.weights.prefetch is about images, which nodes pull, and a claim is served by its storage: remove "
            "prefetch",
            ".prefetch",
            holds=lambda weights: not weights.prefetch or weights.image is not None,
        ),
    )

    image: Annotated[str, Field(min_length=1, max_length=1024, pattern="^[!-~]+$")] | None = None
    """Image or OCI artifact that holds the files of the model, mounted as an image volume (Kubernetes 1.35, containerd
    2.1 or CRI-O). A node pulls it once for all replicas; name it by its digest or by a tag that does not move."""
    pull_policy: PullPolicy | None = None
    """Rule by which nodes pull the image. Default: Always for the tag latest, IfNotPresent for any other."""
    prefetch: bool = False
    """Have each node on which replicas may run pull the image, and the engine's, before a replica starts there. The
    operator makes a DaemonSet for it, with node selector, node affinity and tolerations of the engine's template."""
    claim_name: ObjectName | None = None
    """PersistentVolumeClaim that holds the files. Replicas on several nodes need ReadOnlyMany or ReadWriteMany."""
    path: Annotated[str, Field(max_length=512, pattern=_INSIDE)] | None = None
    """Folder of the model within the volume. Default: its root."""


class PrefetchStatus(ApiModel):
    """Nodes that pull the weights before a replica starts there."""

    nodes: Annotated[int, Field(ge=0)]
    """Nodes on which replicas may run."""
    ready: Annotated[int, Field(ge=0)]
    """Nodes of them that have the images of the weights and of the engine."""
