"""What a cluster says, in files: for whoever looks at a failure later."""

import shutil
from pathlib import Path

from harness.cluster import Cluster

_OBJECTS = "promptgroups,promptroutes,deployments,replicasets,poddisruptionbudgets,endpointslices,leases"
_LISTS = {
    "nodes.yaml": ("get", "nodes", "-o", "yaml"),
    "pods.txt": ("get", "pods", "--all-namespaces", "-o", "wide"),
    "pods.yaml": ("get", "pods", "--all-namespaces", "-o", "yaml"),
    "events.txt": ("get", "events", "--all-namespaces", "--sort-by=.metadata.creationTimestamp"),
    "objects.yaml": ("get", _OBJECTS, "--all-namespaces", "-o", "yaml"),
}


def keep(cluster: Cluster, folder: Path) -> None:
    """Write objects, events and the logs of all containers, those before a restart too. Never fails.

    Secrets are left out. Logs are taken from the nodes, so that they are there without an API server.
    """
    shutil.rmtree(folder, ignore_errors=True)
    folder.mkdir(parents=True)
    kubectl = cluster.kubectl()
    for name, command in _LISTS.items():
        done = kubectl.run(*command, "--request-timeout=20s", check=False)
        (folder / name).write_text(done.stdout or done.stderr)
    for node in (cluster.control_plane, *cluster.workers()):
        script = "cd /var/log/pods && tail -n 500 $(find . -path '*promptgroup*.log' -o -path '*e2e*.log')"
        (folder / f"logs-{node}.txt").write_text(cluster.on(node, "sh", "-c", script, check=False))
        journal = cluster.on(node, "journalctl", "-u", "kubelet", "-n", "500", "--no-pager", check=False)
        (folder / f"kubelet-{node}.txt").write_text(journal)
