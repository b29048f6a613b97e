"""Builds the pod template of workers: the pods of a replica of several nodes that serve no requests themselves.

A worker is the leader's pod without all that belongs to serving: probes, ports, the readiness gate, and the labels by
which the operator and routers find replicas. A label of its own names its group for network policies.
"""

from collections.abc import Mapping
from typing import Any

from promptgroup_contract import names
from promptgroup_operator.api.prompt_group import EngineSpec
from promptgroup_operator.engines.dialects.dialect import Dialect
from promptgroup_operator.world.snapshot import CONTAINER

_SERVES = ("ports", "startupProbe", "readinessProbe", "livenessProbe", "lifecycle")
"""Fields of the engine's container that belong to serving."""
_OWN = (names.LABEL_GROUP, names.LABEL_REVISION)
"""Labels of replicas."""
DEFAULT_GRACE = 30
"""Kubernetes' own terminationGracePeriodSeconds."""

_NAME = "wait"
_COMMAND = 'python3 -I -S -c "$@" || sleep "$2"'
"""An image without a Python waits for the whole time."""
_PROGRAM = """\
import os, socket, sys, time
end = time.monotonic() + float(sys.argv[2])
while time.monotonic() < end:
    try:
        socket.create_connection((os.environ["LWS_LEADER_ADDRESS"], int(sys.argv[1])), 2).close()
    except ConnectionRefusedError:
        break
    except socket.gaierror as error:
        if error.errno != socket.EAI_AGAIN:
            break
    except OSError:
        pass
    time.sleep(1)
"""
"""The program ends once the leader listens no more, or has no address any more.

The deletion of one pod deletes all pods of its replica, the leader among them, which drains first and needs its workers
until its requests have ended.
"""


def worker_template(leader: Mapping[str, Any], speech: Dialect, engine: EngineSpec) -> dict[str, Any]:
    """Return the template of the workers.

    Args:
        leader: the leader's template, with the labels of a replica.
        speech: the engine's dialect.
        engine: of the group's spec.
    """
    metadata, spec = leader["metadata"], leader["spec"]
    labels = {key: value for key, value in metadata["labels"].items() if key not in _OWN}
    labels[names.LABEL_WORKER] = metadata["labels"][names.LABEL_GROUP]
    grace = spec.get("terminationGracePeriodSeconds")
    seconds = grace if isinstance(grace, int) else DEFAULT_GRACE
    containers = [
        _worker(container, speech, engine.port, seconds) if container.get("name") == CONTAINER else dict(container)
        for container in spec["containers"]
    ]
    rest = {key: value for key, value in spec.items() if key not in ("readinessGates", "containers")}
    return {"metadata": {**metadata, "labels": labels}, "spec": {**rest, "containers": containers}}


def _worker(container: Mapping[str, Any], speech: Dialect, port: int, seconds: int) -> dict[str, Any]:
    """Return the engine's container of a worker; `seconds` is the pod's grace period."""
    command = ["sh", "-c", _COMMAND, _NAME, _PROGRAM, str(port), str(seconds)]
    return {
        **{key: value for key, value in container.items() if key not in _SERVES},
        "args": [*container.get("args", []), *speech.worker_args],
        "lifecycle": {"preStop": {"exec": {"command": command}}},
    }
