"""What the project's service accounts ask of an API server: its own audit log, and the rights that roles grant.

https://kubernetes.io/docs/tasks/debug/debug-cluster/audit/
"""

import json
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from promptgroup_local.kubectl import Kubectl

POLICY = """\
apiVersion: audit.k8s.io/v1
kind: Policy
omitStages: [RequestReceived]
rules:
  - level: None
    userGroups: ["system:serviceaccounts:kube-system"]
  - level: Metadata
    userGroups: ["system:serviceaccounts"]
  - level: None
"""
"""Who asked for what, of pods' accounts alone: no bodies, and nothing of Kubernetes' own controllers."""

MOST_MEGABYTES = 100
"""Size at which the log begins anew: a thousand bytes a request, a hundred thousand requests. One old file is kept."""

ACCOUNTS = ("promptgroup-operator", "promptgroup-router")


def flags(folder: Path) -> list[str]:
    """Flags of a kube-apiserver that writes the log into a folder."""
    folder.mkdir(parents=True, exist_ok=True)
    policy = folder / "policy.yaml"
    policy.write_text(POLICY)
    return [
        f"--audit-policy-file={policy}",
        f"--audit-log-path={log(folder)}",
        f"--audit-log-maxsize={MOST_MEGABYTES}",
        "--audit-log-maxbackup=1",
    ]


def log(folder: Path) -> Path:
    """The log in a folder."""
    return folder / "audit.log"


@dataclass(frozen=True, slots=True, order=True)
class Right:
    """A verb on a resource, as roles grant it; a subresource stands behind a slash."""

    group: str
    resource: str
    verb: str


@dataclass(frozen=True, slots=True)
class Request:
    """One answered request for objects."""

    user: str
    namespace: str
    name: str
    """Of the object; empty where none is meant. A role may grant a right over one of a name alone."""
    right: Right
    allowed: bool
    """Whether a role granted it; admission may have refused it all the same."""
    created: bool
    """Whether a server-side apply made the object: then the right to create was asked for as well."""

    def used(self) -> set[Right]:
        """The rights that it took."""
        create = Right(self.right.group, self.right.resource, "create")
        return {self.right} | ({create} if self.created else set())


def requests(folder: Path, since: int = 0) -> Iterator[Request]:
    """What the accounts asked, from an offset of the log on."""
    with log(folder).open("rb") as file:
        file.seek(since)
        lines = file.read().splitlines(keepends=True)
    for line in lines:
        found = _request(json.loads(line)) if line.endswith(b"\n") else None
        if found is not None:
            yield found


def _request(event: dict[str, Any]) -> Request | None:
    user, about = event["user"]["username"], event.get("objectRef")
    if user.rpartition(":")[2] not in ACCOUNTS or about is None:
        return None
    subresource = f"/{about['subresource']}" if "subresource" in about else ""
    right = Right(about.get("apiGroup", ""), about.get("resource", "") + subresource, event["verb"])
    return Request(
        user,
        about.get("namespace", ""),
        about.get("name", ""),
        right,
        allowed=event.get("annotations", {}).get("authorization.k8s.io/decision") == "allow",
        created=right.verb == "patch" and event.get("responseStatus", {}).get("code") == 201,
    )


def refused(kube: Kubectl, folder: Path, user: str) -> list[Request]:
    """What a user was refused, and is refused still, in namespaces that stand.

    An API server that has just started refuses until it has read the roles.
    """
    standing = {"", *(each["metadata"]["name"] for each in kube.list("namespaces"))}
    found = {each for each in requests(folder) if not each.allowed and each.user == user and each.namespace in standing}
    return [each for each in found if not allows(kube, each)]


def user(namespace: str, account: str) -> str:
    """Name of a service account to the API server."""
    return f"system:serviceaccount:{namespace}:{account}"


def granted(kube: Kubectl, *roles: str) -> set[Right]:
    """The rights of roles as they stand: `clusterrole/NAME`, or `role/NAME` of the namespace."""
    found = set()
    for role in roles:
        kind, _, name = role.partition("/")
        for rule in (kube.get(kind, name) or {}).get("rules") or ():
            for group in rule["apiGroups"]:
                for resource in rule["resources"]:
                    found |= {Right(group, resource, verb) for verb in rule["verbs"]}
    return found


def allows(kube: Kubectl, request: Request) -> bool:
    """Whether the API server would grant it now."""
    resource, _, subresource = request.right.resource.partition("/")
    asked = {
        "verb": request.right.verb,
        "group": request.right.group,
        "resource": resource,
        "subresource": subresource,
        "namespace": request.namespace,
        "name": request.name,
    }
    review = {
        "apiVersion": "authorization.k8s.io/v1",
        "kind": "SubjectAccessReview",
        "spec": {"user": request.user, "resourceAttributes": asked},
    }
    answer = kube.run("create", "-f", "-", "-o", "json", stdin=json.dumps(review))
    return bool(json.loads(answer.stdout)["status"]["allowed"])
