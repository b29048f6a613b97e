"""`promptgroup status`: groups, their revisions and slots, and what they wait for."""

import argparse
import sys

from promptgroup_cli.reach.connect import ClusterConnection, ReachError, add_namespace
from promptgroup_cli.reach.group_status import GroupStatus, group_status
from promptgroup_cli.render import status_output
from promptgroup_operator.world.snapshot import Manifest
from promptgroup_router.contract import names

EXIT = "exit status: 0 when every group shown is Ready, 1 when one is not, 2 when the cluster could not be asked"


def add(commands: "argparse._SubParsersAction[argparse.ArgumentParser]") -> None:
    """Add the command and its flags."""
    parser = commands.add_parser(
        "status",
        help="a group's revisions and slots, and what it waits for",
        description="One PromptGroup with all that is known of it, or all of a namespace with a line each.",
        epilog=EXIT,
    )
    parser.add_argument("name", nargs="?", metavar="NAME", help="of one group (default: all)")
    where = parser.add_mutually_exclusive_group()
    add_namespace(where)
    where.add_argument("-A", "--all-namespaces", action="store_true")
    parser.add_argument("-o", "--output", choices=("table", "json"), default="table", help="default: %(default)s")
    parser.set_defaults(run=_run)


def _run(arguments: argparse.Namespace) -> int:
    try:
        with ClusterConnection(arguments.namespace) as cluster:
            namespace = "" if arguments.all_namespaces else cluster.namespace
            groups = _look(cluster, namespace, arguments.name)
    except ReachError as error:
        print(f"promptgroup status: {error}", file=sys.stderr)
        return 2
    if arguments.output == "json":
        print(status_output.document(groups))
    elif groups:
        print(status_output.table(groups, namespaces=arguments.all_namespaces))
    else:
        print(f"no PromptGroups in {f'namespace {namespace}' if namespace else 'any namespace'}", file=sys.stderr)
    return 0 if all(each.ready for each in groups) else 1


def _look(cluster: ClusterConnection, namespace: str, name: str | None) -> list[GroupStatus]:
    """The groups, with what belongs to each.

    Raises:
        ReachError: the cluster cannot be asked, or has no group of that name.
    """
    groups = cluster.list("PromptGroup", namespace, name=name or "")
    if name is not None and not groups:
        where = f"in namespace {namespace}: `promptgroup status -A` lists all" if namespace else "in any namespace"
        raise ReachError(f"there is no PromptGroup {name} {where}")
    routes = {_key(each): each for each in cluster.list("PromptRoute", namespace, name=name or "")}
    labels = f"{names.LABEL_GROUP}={name}" if name is not None else names.LABEL_GROUP
    pods = cluster.list("Pod", namespace, labels=labels) if groups else []
    return [
        group_status(
            group,
            routes.get(_key(group)),
            [pod for pod in pods if _belongs(pod) == _key(group)],
        )
        for group in sorted(groups, key=_key)
    ]


def _key(manifest: Manifest) -> tuple[str, str]:
    return manifest["metadata"]["namespace"], manifest["metadata"]["name"]


def _belongs(pod: Manifest) -> tuple[str, str]:
    return pod["metadata"]["namespace"], pod["metadata"]["labels"][names.LABEL_GROUP]
