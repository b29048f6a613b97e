"""`promptgroup adopt`: make the manifest of a host from a Deployment of vLLM or SGLang that runs."""

import argparse

from promptgroup_cli.base.errors import ExitStatus, InputError, RefusedError, exit_statuses
from promptgroup_cli.base.flags import add_cluster, add_output, cluster_choice, group_name
from promptgroup_cli.reach.files import MANIFEST_BYTES, STDIN, read_text, shown, write_new

FILE = "host.yaml"
"""Name of the manifest in the suggested commands, where it is not written to a file."""


def add(parser: argparse.ArgumentParser) -> None:
    """Add the command's description and flags."""
    parser.description = (
        "Make a PromptGroup without a prompt from a Deployment of vLLM or SGLang: a host, on whose replicas other\n"
        "groups keep their prompts warm. The manifest says what is kept, what is not and why, and in which order\n"
        "the host takes over. Nothing is changed in the cluster."
    )
    parser.epilog = exit_statuses(
        "the manifest was made",
        "the Deployment cannot be a host, or the API server would refuse the PromptGroup",
        "  promptgroup adopt mistral -n chat --write host.yaml\n  promptgroup adopt -f deployment.yaml\n",
    )
    parser.add_argument("deployment", nargs="?", default="", metavar="NAME", help="the Deployment to adopt")
    add_cluster(parser)
    parser.add_argument(
        "-f", "--file", metavar="FILE", help="manifests to read instead of the cluster; - for standard input"
    )
    parser.add_argument("--name", type=group_name, metavar="NAME", help="name of the PromptGroup (default: its)")
    parser.add_argument("--write", metavar="FILE", help="write the manifest to a new file (default: standard output)")
    add_output(parser, "yaml", "json")


def run(arguments: argparse.Namespace) -> int:
    """Run the command and return its exit status."""
    # the models of the CRD and YAML take a third of a second to import, which `--help` does without
    from promptgroup_cli.adoption import handover, host, report, workload  # noqa: PLC0415
    from promptgroup_cli.adoption.decision import AdoptionError  # noqa: PLC0415

    if arguments.file is None and not arguments.deployment:
        raise InputError("name the Deployment to adopt, or give its manifest with --file")
    documents, namespace = _documents(arguments)
    try:
        result = workload.find(documents, arguments.deployment)
        adopted = host.adopt(result, arguments.name or "")
    except AdoptionError as error:
        raise RefusedError(str(error)) from None
    namespace = namespace or result.namespace
    services = handover.services(adopted, list(workload.objects(documents)))
    steps = list(handover.steps(adopted, arguments.write or FILE, namespace, services))
    made = report.text(adopted, steps)
    _check(made, namespace)
    if arguments.output == "json":
        print(report.document(adopted, steps))
    elif arguments.write is None or arguments.write == STDIN:
        print(made, end="")
    if arguments.write is not None and arguments.write != STDIN:
        write_new(arguments.write, made, "--write")
        if arguments.output != "json":
            print("\n".join(report.lines(adopted, steps)))
            print(f"\nwrote {arguments.write}")
    return ExitStatus.OK


def _documents(arguments: argparse.Namespace) -> tuple[list[object], str]:
    """Return the manifests, and their namespace where a flag or the cluster names it."""
    if arguments.file is not None:
        from promptgroup_cli.base import bounded_yaml  # noqa: PLC0415 - `--help` needs no YAML

        try:
            return bounded_yaml.load_all(read_text(arguments.file, MANIFEST_BYTES)), arguments.namespace or ""
        except bounded_yaml.YamlError as error:
            raise InputError(f"{shown(arguments.file)}: {error}") from None
    from promptgroup_cli.reach.connect import ClusterConnection  # noqa: PLC0415 - brings the client of the API server

    with ClusterConnection(cluster_choice(arguments)) as cluster:
        result = cluster.list("Deployment", cluster.namespace, name=arguments.deployment)
        if not result:
            raise InputError(f"there is no Deployment {arguments.deployment} in namespace {cluster.namespace}")
        services = cluster.list("Service", cluster.namespace)
        named = [{**item, "kind": "Deployment"} for item in result]
        return [*named, *({**service, "kind": "Service"} for service in services)], cluster.namespace


def _check(made: str, namespace: str) -> None:
    """Refuse a PromptGroup that the API server or the operator would refuse."""
    from datetime import UTC, datetime  # noqa: PLC0415

    from promptgroup_cli.rehearsal import manifest  # noqa: PLC0415

    try:
        manifest.read_group(made, namespace or "default", datetime.now(UTC))
    except manifest.ManifestError as error:
        raise RefusedError(f"the Deployment makes no PromptGroup that can be applied: {error}") from None
