"""The memory of a guest that an operator keeps in its PromptRoute: it has no Deployments to keep it on.

Routers do not read it, so that it is no part of the contract. `guests.record` makes values of it.
"""

from typing import Annotated, Literal

from pydantic import Field

from promptgroup_contract.fingerprint import Fingerprint
from promptgroup_operator.api.model import ApiModel


class GuestProof(ApiModel):
    """A replica of the host that was proven warm for a guest's revision."""

    pod: str
    """Name of the pod."""
    container: str
    """Id of the container that was proven."""
    reason: str
    """Reason as in the condition of a pod."""
    message: str = ""
    """The proof in words."""
    since: Annotated[str, Field(json_schema_extra={"format": "date-time"})] | None = None
    """Time of the proof, RFC 3339 in UTC."""
    prefix_tokens: Annotated[int, Field(ge=0)] = 0
    """Length of the prefix in tokens, as the engine counted it."""
    prefill_tokens_per_second: Annotated[int, Field(ge=0)] = 0
    """Rate at which the engine computed it; 0 if it was too short to tell."""


class GuestRevision(ApiModel):
    """A revision of a guest."""

    fingerprint: Annotated[Fingerprint, Field(pattern="^[0-9a-f]{32}$")]
    """Hash of its prompt."""
    created: str
    """Time at which it was first seen, RFC 3339 in UTC."""
    replicas: Annotated[int, Field(ge=0)]
    """Replicas of the host that shall keep it warm."""
    prompt_kind: Literal["ConfigMap", "Secret"]
    """Kind of the object that holds its prompt."""
    records: dict[str, str] | None = None
    """The records of its release, as a Deployment has them in annotations."""
    warm: list[GuestProof] | None = None
    """The replicas that were proven warm for it."""


class RouteGuest(ApiModel):
    """The operator's memory of a guest, which has no Deployments to keep it on. Routers do not read it."""

    revisions: list[GuestRevision] = []
    """Every revision, retired ones included."""
