"""The cluster that the flags of a command name, and how kubectl is told of the same one."""

import argparse
import shlex
from dataclasses import dataclass


@dataclass(frozen=True, slots=True)
class ClusterChoice:
    """A cluster and a namespace of it, as kubectl's flags name them; what is empty is left to the kubeconfig."""

    namespace: str = ""
    context: str = ""
    kubeconfig: str = ""

    @property
    def kubectl(self) -> str:
        """The beginning of a command line for people, by which kubectl asks the same cluster."""
        flags = (("--kubeconfig", self.kubeconfig), ("--context", self.context))
        return " ".join(["kubectl", *(f"{flag} {shlex.quote(value)}" for flag, value in flags if value)])


def cluster_choice(arguments: argparse.Namespace) -> ClusterChoice:
    """Return what the flags of `add_cluster` were given."""
    return ClusterChoice(arguments.namespace or "", arguments.context or "", arguments.kubeconfig or "")
