"""The hook by which a deleted engine pod continues to serve until it is idle, for its drain time at most.

Kubernetes runs the hook (`preStop`) for every deletion of a pod: scale-down, rolling update, eviction, node drain,
preemption, `kubectl delete`, shutdown of the node. At SIGTERM engines abort running requests, at once or after a
timeout (vLLM's --shutdown-timeout, which the operator sets), so the signal must come when they are idle. Does no I/O.
"""

import math
from collections.abc import Mapping
from datetime import timedelta
from typing import Any

from promptgroup_contract import names
from promptgroup_operator.engines.dialects.dialect import Dialect

ROUTED_SECONDS = 5
"""Minimum time in seconds for which a deleted pod serves, until every router has removed its slot."""
END_SECONDS = 30
"""Time in seconds between SIGTERM and SIGKILL, in which an engine ends its processes."""
UNHEALTHY_SECONDS = 30
"""Grace period in seconds of an engine whose probe failed: it answers no requests, so the drain need not wait."""
LEAST_END_SECONDS = 5
"""Time in seconds between SIGTERM and SIGKILL that remains with a template's own terminationGracePeriodSeconds."""
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
"""The program ends once the engine's metrics show twice in a row that no request runs or waits, or at the drain time.

Certificates are not verified, as in probes. An engine that refuses connections counts as idle. For a replica that the
operator already drains, only the rest of its drain time applies.

An engine whose metrics cannot be read may be busy: it may serve none, or be slow to write them. The hook waits while
the path for probes has any response but a server error. An engine with neither response for SILENT_SECONDS serves no
clients either, since the same HTTP server answers all of them.
"""


_FOLDER, _FILE = "/etc/promptgroup-pod", "draining-since"
"""Path in a pod of its annotation with the start of draining; the file is empty before that."""
_WORDS, _LONGEST = 15, 9
"""Number of words in the hook's command, and the index of the drain time."""


def drain_seconds(timeout: timedelta) -> int:
    """Return the drain time in whole seconds: at least the time in which routers receive the change."""
    return max(ROUTED_SECONDS, math.ceil(timeout.total_seconds()))


def pod_parts(
    speech: Dialect, container: str, port: int, seconds: int, template: Mapping[str, Any], *, tls: bool
) -> dict[str, Any]:
    """Return the hook and the grace period, over which a user's template is merged.

    Args:
        speech: the engine's dialect.
        container: the engine's container.
        port: its port.
        seconds: the drain time.
        template: the user's template. If it has a `preStop`, the hook is not added; if it has a grace period, that
            limits the drain time.
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
    """Return True if a template, which may be malformed, sets its engine's `preStop`, including to `null`."""
    containers = spec.get("containers")
    for item in containers if isinstance(containers, list) else ():
        if isinstance(item, Mapping) and item.get("name") == container and "lifecycle" in item:
            lifecycle = item["lifecycle"]
            return not isinstance(lifecycle, Mapping) or "preStop" in lifecycle or "$patch" in lifecycle
    return False


def hook_seconds(template: Mapping[str, Any], container: str) -> int | None:
    """Return the drain time in a live pod template; None if it has no hook of this form."""
    spec = template.get("spec", {})
    for item in spec.get("containers", ()):
        match item:
            case {"name": str(name), "lifecycle": {"preStop": {"exec": {"command": [*words]}}}} if name == container:
                if len(words) == _WORDS and words[3] == _NAME and str(words[_LONGEST]).isdecimal():
                    return int(words[_LONGEST])
    return None
