"""The source of an engine's weights, in the spec of a PromptGroup."""

import enum
from typing import Annotated

from pydantic import Field

from promptgroup_operator.api.model import ApiModel, ObjectName, rule, rules

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
    )

    image: Annotated[str, Field(min_length=1, max_length=1024, pattern="^[!-~]+$")] | None = None
    """Image or OCI artifact that holds the files of the model, mounted as an image volume (Kubernetes 1.35, containerd
    2.1 or CRI-O). A node pulls it once for all replicas; name it by its digest or by a tag that does not move."""
    pull_policy: PullPolicy | None = None
    """Rule by which nodes pull the image. Default: Always for the tag latest, IfNotPresent for any other."""
    claim_name: ObjectName | None = None
    """PersistentVolumeClaim that holds the files. Replicas on several nodes need ReadOnlyMany or ReadWriteMany."""
    path: Annotated[str, Field(max_length=512, pattern=_INSIDE)] | None = None
    """Folder of the model within the volume. Default: its root."""
