"""`spec.gateway` of a PromptGroup: its place behind gateways of the Inference Extension."""

import enum
from typing import Annotated

from pydantic import Field

from promptgroup_operator.api.model import ApiModel


class FailureMode(enum.StrEnum):
    """Treatment of a request for which no picker answers, in the words of InferencePools."""

    FAIL_CLOSE = "FailClose"
    FAIL_OPEN = "FailOpen"


class GatewaySpec(ApiModel):
    """The InferencePool by which gateways reach the group."""

    inference_pool: Annotated[str, Field(max_length=63, pattern="^[a-z0-9]([-a-z0-9]*[a-z0-9])?$")] | None = None
    """InferencePool that the replicas are in. Default: the one of the group's own name, which the operator makes and
    owns. The name of another group joins that group's pool, so that one HTTPRoute serves both."""
    failure_mode: FailureMode = FailureMode.FAIL_CLOSE
    """Treatment of requests while no picker answers. FailClose refuses them. FailOpen sends them to any replica of the
    pool, cold or not, past all that the picker checks. A group that joins another's pool has that one's."""
