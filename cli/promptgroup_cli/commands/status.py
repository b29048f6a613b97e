"""`promptgroup status`: show groups, their revisions and slots, and what they wait for."""

import argparse
import sys
from datetime import UTC, datetime
from typing import TYPE_CHECKING

from promptgroup_cli.base.cluster_choice import cluster_choice
from promptgroup_cli.base.errors import ExitStatus, InputError
from promptgroup_cli.reach.connect import ClusterConnection, Manifest
from promptgroup_router.contract import names

if TYPE_CHECKING:
    from promptgroup_cli.reach.group_status import GroupStatus


def run(arguments: argparse.Namespace) -> int:
    """Run the command and return its exit status."""
    with ClusterConnection(cluster_choice(arguments)) as cluster:
        # pydantic's models take half a second to import, which a kubeconfig that cannot be used need not cost
        from promptgroup_cli.render import status_output  # noqa: PLC0415

        namespace = "" if arguments.all_namespaces else cluster.namespace
        groups = _read(cluster, namespace, arguments.name)
    if arguments.output == "json":
        print(status_output.document(groups))
    elif groups:
        print(status_output.table(groups, namespaces=arguments.all_namespaces))
    else:
        print(f"no PromptGroups in {f'namespace {namespace}' if namespace else 'any namespace'}", file=sys.stderr)
    return ExitStatus.OK if all(each.ready for each in groups) else ExitStatus.NEGATIVE


def _read(cluster: ClusterConnection, namespace: str, name: str | None) -> "list[GroupStatus]":
    """Return the groups with their routes and pods, by namespace and name.

    Raises:
        InputError: there is no group of that name.
        ReachError: the cluster does not answer.
    """
    groups = cluster.list("PromptGroup", namespace, name=name or "")
    if name is not None and not groups:
        where = f"in namespace {namespace}: `promptgroup status -A` lists all" if namespace else "in any namespace"
        raise InputError(f"there is no PromptGroup {name} {where}")
    routes = {_key(each): each for each in cluster.list("PromptRoute", namespace, name=name or "")}
    labels = f"{names.LABEL_GROUP}={name}" if name is not None else names.LABEL_GROUP
    pods = cluster.list("Pod", namespace, labels=labels) if groups else []
    from promptgroup_cli.reach.group_status import group_status  # noqa: PLC0415 - as above

    now = datetime.now(UTC)
    return [
        group_status(
            group,
            routes.get(_key(group)),
            [pod for pod in pods if _belongs(pod) == _key(group)],
            cluster.kubectl,
            now,
        )
        for group in sorted(groups, key=_key)
    ]


def _key(manifest: Manifest) -> tuple[str, str]:
    return manifest["metadata"]["namespace"], manifest["metadata"]["name"]


def _belongs(pod: Manifest) -> tuple[str, str]:
    return pod["metadata"]["namespace"], pod["metadata"]["labels"][names.LABEL_GROUP]
