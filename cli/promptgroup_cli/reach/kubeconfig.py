"""Finds the kubeconfigs by kubectl's rules, and reports faults in them before a client is created.

A flag precedes $KUBECONFIG, which precedes the file in the home folder. Files are read bounded, and merged as kubectl
does: of two entries with one name the first counts.
"""

import os
from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from promptgroup_cli.base.errors import InputError
from promptgroup_cli.base.flags import ClusterChoice
from promptgroup_cli.reach.files import read_text
from promptgroup_contract.command_line import did_you_mean
from promptgroup_operator.base.settings import Settings

MOST_BYTES = 4 << 20
"""Limit of a kubeconfig; one with certificates for a hundred clusters has 1 MiB."""
MOST_NAMED = 20
"""Contexts that a message names at most."""


@dataclass(frozen=True, slots=True)
class FoundKubeconfig:
    """The kubeconfigs that are read."""

    paths: str = ""
    """As in $KUBECONFIG; empty inside a pod, where none is read."""
    program: str = ""
    """The program of the user's `exec`, which makes the credentials; empty without one."""


def find_kubeconfig(choice: ClusterChoice, settings: Settings) -> FoundKubeconfig:
    """Read the kubeconfigs as the client will.

    Raises:
        InputError: there is none, one of them is no YAML map, or they do not have the context that the flag names.
    """
    given = choice.kubeconfig or os.environ.get("KUBECONFIG", "")
    if not given and not choice.context and (settings.service_account_dir / "token").exists():
        return FoundKubeconfig()
    paths = given.split(os.pathsep) if given else [str(Path("~/.kube/config").expanduser())]
    present = [path for path in paths if path and Path(path).exists()]
    if not present:
        raise InputError(
            f"no kubeconfig at {os.pathsep.join(paths)}: set KUBECONFIG to one, name one with --kubeconfig, or run "
            "inside a pod"
        )
    documents = [_document(path) for path in present]
    joined = os.pathsep.join(present)
    contexts = _named(documents, "contexts", "context")
    current = next((document["current-context"] for document in documents if document.get("current-context")), "")
    if choice.context and choice.context not in contexts:
        listed = ", ".join([*list(contexts)[:MOST_NAMED], *(["..."] if len(contexts) > MOST_NAMED else [])])
        has = f"whose contexts are {listed}" if contexts else "which has no contexts"
        raise InputError(
            f"--context {choice.context!r} is not in {joined}, {has}{did_you_mean(choice.context, contexts)}"
        )
    user = contexts.get(choice.context or str(current), {}).get("user")
    program = _map(_named(documents, "users", "user").get(str(user), {}).get("exec")).get("command", "")
    return FoundKubeconfig(joined, str(program))


def default_namespace(settings: Settings, file: str, context: str) -> str:
    """Return the namespace of the kubeconfig's context, or else of the pod, or else `default`.

    Args:
        settings: settings with the path of a pod's own namespace.
        file: the kubeconfigs that a flag names; empty for those of the environment.
        context: the context that a flag names; empty for the current one.
    """
    from kubernetes import config  # noqa: PLC0415 - half a second, which a kubeconfig that cannot be used need not cost

    read: Any = config.list_kube_config_contexts
    try:
        listed, current = read(file or os.environ.get("KUBECONFIG") or None)
        chosen = next((item for item in listed if item["name"] == context), current)
        return str(chosen["context"].get("namespace", "default"))
    except config.ConfigException:
        written = settings.service_account_dir / "namespace"
        return written.read_text() if written.exists() else "default"


def _document(path: str) -> Mapping[str, Any]:
    from promptgroup_cli.base import bounded_yaml  # noqa: PLC0415 - YAML takes long to import, and there may be no file
    from promptgroup_cli.base.bounded_yaml import YamlError  # noqa: PLC0415

    try:
        documents = bounded_yaml.load_all(read_text(path, MOST_BYTES))
    except YamlError as error:
        raise InputError(f"{path}: not a kubeconfig: {error}") from None
    if len(documents) != 1 or not isinstance(documents[0], dict):
        raise InputError(f"{path}: not a kubeconfig: it is no YAML map; `kubectl config view` shows one")
    return documents[0]


def _named(documents: Iterable[Mapping[str, Any]], plural: str, singular: str) -> Mapping[str, Mapping[str, Any]]:
    """Return name → entry of all files; malformed entries are left for the client to refuse."""
    result: dict[str, Mapping[str, Any]] = {}
    for document in documents:
        listed = document.get(plural)
        for item in listed if isinstance(listed, list) else ():
            if isinstance(item, dict) and isinstance(item.get("name"), str):
                result.setdefault(item["name"], _map(item.get(singular)))
    return result


def _map(value: object) -> Mapping[str, Any]:
    return value if isinstance(value, dict) else {}
