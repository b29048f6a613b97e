"""Groups as a GitOps controller and the operator leave them: what changed, and who wrote."""

from typing import Any

from promptgroup_local.kubectl import Kubectl


def versions(team: Kubectl) -> dict[str, str]:
    """Return the resourceVersion of each group of a namespace and of all that belongs to it."""
    objects = team.list("promptgroups,promptroutes,deployments", "")
    return {f"{item['kind']}/{item['metadata']['name']}": item["metadata"]["resourceVersion"] for item in objects}


def specs(team: Kubectl) -> dict[str, dict[str, Any]]:
    """Return the specs of the groups of a namespace, by name."""
    return {item["metadata"]["name"]: item["spec"] for item in team.list("promptgroups")}
