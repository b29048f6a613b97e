"""The hook that lets an engine's pod serve on until nothing runs, for its drain time at most, whoever deletes it.

Kubernetes runs the hook (`preStop`) for each way in which a pod goes: scale-down, roll, eviction, node drain,
preemption, `kubectl delete`, shutdown of the node. Engines abort at SIGTERM what they still answer, or after a time of
their own (vLLM's --shutdown-timeout, which the operator sets), so the signal comes when nothing runs. Does no I/O.
"""

import math
from collections.abc import Mapping
from datetime import timedelta
from typing import Any

from promptgroup_contract import names
from promptgroup_operator.engines.dialects.dialect import Dialect

ROUTED_SECONDS = 5
"""A pod that goes serves for so long at least, until every router has dropped its slot."""
END_SECONDS = 30
"""Time of an engine between SIGTERM and SIGKILL, to end its processes."""
UNHEALTHY_SECONDS = 30
"""Time of an engine that a probe has given up on: it answers nobody, so there is nothing to wait for."""
LEAST_END_SECONDS = 5
"""Time that a template's own terminationGracePeriodSeconds leaves for the same."""
SILENT_SECONDS = 60
"""Time after which an engine that answers nothing at all is given up, by its liveness probe too. Kubernetes stops that
probe when a pod is to go, so the hook goes on with what it asks."""

_NAME = "drain"
_COMMAND = 'python3 -I -S -c "$@" || sleep "$6"'
"""An image without a Python cannot tell when its engine is idle: it serves on for the whole time."""
_PROGRAM = """\
import calendar, http.client, os, re, sys, time
scheme, port, path, least, longest, absent, gauges, since, health, silent = sys.argv[1:]
gauges, longest, silent = gauges.split(","), float(longest), float(silent)
try:
    with open(since) as file:
        begun = calendar.timegm(time.strptime(file.read(19), "%Y-%m-%dT%H:%M:%S"))
    longest = min(longest, max(float(least), longest - (time.time() - begun)))
except (OSError, ValueError):
    pass
def ask(path):
    kind = http.client.HTTPSConnection if scheme == "https" else http.client.HTTPConnection
    extra = {"timeout": max(1.0, min(silent / 6, end - time.monotonic()))}
    if scheme == "https":
        import ssl
        extra["context"] = ssl._create_unverified_context()
    link = kind(os.environ.get("POD_IP") or "127.0.0.1", int(port), **extra)
    try:
        link.request("GET", path)
        answer = link.getresponse()
        return answer.status, answer.read(1 << 24).decode(errors="replace")
    finally:
        link.close()
def busy():
    try:
        status, page = ask(path)
    except ConnectionRefusedError:
        return 0.0
    except Exception:
        return None
    if status != 200:
        return None
    seen = re.findall(r"(?m)^([\\w:]+)(\\{.*\\})? +([0-9.eE+-]+)", page)
    values = [float(value) for name, labels, value in seen
              if name in gauges or name + "/POST" in gauges and 'method="POST"' in labels]
    return sum(values) if values or absent == "idle" else None
def answers():
    try:
        return ask(health)[0] < 500
    except Exception:
        return False
now = heard = time.monotonic()
end, start, idle = now + longest, now + float(least), 0
while now < end and idle < 2 and now - heard < silent:
    time.sleep(1)
    running = busy()
    if running is not None or answers():
        heard = time.monotonic()
    now = time.monotonic()
    idle = idle + 1 if now >= start and running == 0 else 0
"""
"""Ends once the engine's own metrics say twice in a row that nothing runs and nothing waits, or at the longest time.

Nobody verifies a certificate, as with probes. An engine that nobody can connect to runs nothing. A replica of which
the operator says that it drains already has what is left of its time.

An engine whose metrics cannot be read may be busy: it may serve none, or be slow to write them. It keeps its time while
its path for probes has any answer but a server error. One that gives neither for SILENT_SECONDS gives its clients
nothing either, since the same server answers them all.
"""


_FOLDER, _FILE = "/etc/promptgroup-pod", "draining-since"
"""Where a pod finds its annotation that says since when it drains; empty until it does."""
_WORDS, _LONGEST = 15, 9
"""Words of the hook's command, and which of them is the drain time."""


def drain_seconds(timeout: timedelta) -> int:
    """Return the drain time in whole seconds, in which routers learn of it at least."""
    return max(ROUTED_SECONDS, math.ceil(timeout.total_seconds()))


def pod_parts(
    speech: Dialect, container: str, port: int, seconds: int, template: Mapping[str, Any], *, tls: bool
) -> dict[str, Any]:
    """Return the hook and the grace period, for a user's template to be merged over.

    Args:
        speech: the engine's dialect.
        container: the engine's container.
        port: its port.
        seconds: the drain time.
        template: the user's template. One with a `preStop` of its own gets no second one; a grace period of its own
            bounds the drain time.
        tls: True if the port serves TLS.
    """
    spec = template.get("spec")
    spec = spec if isinstance(spec, Mapping) else {}
    own = spec.get("terminationGracePeriodSeconds")
    longest = max(ROUTED_SECONDS, min(seconds, own - LEAST_END_SECONDS)) if isinstance(own, int) else seconds
    grace = {"terminationGracePeriodSeconds": seconds + END_SECONDS}
    if _has_hook(spec, container):
        return {"spec": grace}
    engine = {
        "name": container,
        "lifecycle": {"preStop": {"exec": {"command": _command(speech, port, longest, tls=tls)}}},
        "volumeMounts": [{"name": "pod", "mountPath": _FOLDER, "readOnly": True}],
    }
    item = {"path": _FILE, "fieldRef": {"fieldPath": f"metadata.annotations['{names.ANNOTATION_DRAINING}']"}}
    return {"spec": {"containers": [engine], "volumes": [{"name": "pod", "downwardAPI": {"items": [item]}}], **grace}}


def _command(speech: Dialect, port: int, longest: int, *, tls: bool) -> list[str]:
    metrics = speech.metrics
    gauges = (*metrics.running, *metrics.waiting, *(f"{name}/POST" for name in metrics.active))
    where = ("https" if tls else "http", str(port), metrics.path)
    bounds = (str(ROUTED_SECONDS), str(longest), "idle" if metrics.late else "unknown")
    result = (",".join(gauges), f"{_FOLDER}/{_FILE}", speech.health, str(SILENT_SECONDS))
    return ["sh", "-c", _COMMAND, _NAME, _PROGRAM, *where, *bounds, *result]


def _has_hook(spec: Mapping[str, Any], container: str) -> bool:
    """Return True if a template, which may have any form, says what its engine does before it ends, `null` included."""
    containers = spec.get("containers")
    for item in containers if isinstance(containers, list) else ():
        if isinstance(item, Mapping) and item.get("name") == container and "lifecycle" in item:
            lifecycle = item["lifecycle"]
            return not isinstance(lifecycle, Mapping) or "preStop" in lifecycle or "$patch" in lifecycle
    return False


def kept_seconds(template: Mapping[str, Any], container: str) -> int | None:
    """Return the drain time that a live pod template was made with; None where nobody can tell."""
    spec = template.get("spec", {})
    for item in spec.get("containers", ()):
        match item:
            case {"name": str(name), "lifecycle": {"preStop": {"exec": {"command": [*words]}}}} if name == container:
                if len(words) == _WORDS and words[3] == _NAME and str(words[_LONGEST]).isdecimal():
                    return int(words[_LONGEST])
    return None
