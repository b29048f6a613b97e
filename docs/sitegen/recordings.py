"""Terminal recordings as SVG: the command line's own output for a group that is written down here."""

import io
import re
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

from rich._export_format import CONSOLE_SVG_FORMAT
from rich.console import Console
from rich.text import Text

from promptgroup_cli.commands import status as status_command
from promptgroup_cli.commands import top as top_command
from promptgroup_cli.reach.group_status import group_status
from promptgroup_cli.reach.top_rates import ReplicaRate, TopRates
from promptgroup_contract.fingerprint import Fingerprint, short

ASSETS = Path(__file__).parents[1] / "assets"
FINGERPRINT = Fingerprint("9f2c61d0" + "0" * 24)
NOW = datetime(2026, 11, 21, 9, 30, tzinfo=UTC)
CREATED = "2026-11-21T09:00:00Z"
FORMAT = re.sub(r"@font-face \{\{.*?\}\}\s*", "", CONSOLE_SVG_FORMAT, flags=re.DOTALL).replace("Fira Code, ", "")
"""Rich's own form without the fonts that it would fetch from elsewhere."""
WIDTH = 110
"""Columns of the terminal."""


def condition(kind: str, status: str, reason: str, message: str) -> dict[str, Any]:
    """Return a condition of the group."""
    return {"type": kind, "status": status, "reason": reason, "message": message, "observedGeneration": 3}


def group() -> dict[str, Any]:
    """Return a PromptGroup one of whose replicas is being replaced."""
    revision = {"fingerprint": FINGERPRINT, "deployment": "support-9f2c61d0", "replicas": 3, "warm": 2, "ready": 2}
    return {
        "metadata": {"namespace": "chat", "name": "support", "generation": 3, "uid": "u", "creationTimestamp": CREATED},
        "spec": {
            "model": "Qwen/Qwen3-8B",
            "prompt": {"system": "x"},
            "engine": {"image": "i"},
            "sizing": {"minReplicas": 2, "maxReplicas": 8},
        },
        "status": {
            "observedGeneration": 3,
            "conditions": [
                condition("Accepted", "True", "Accepted", "the spec is valid"),
                condition("Ready", "False", "Warming", "2 of 3 replicas of 9f2c61d0 are warm"),
                condition("PrefixWarm", "False", "Warming", "the operator computes the prefix in 1 replica"),
                condition("ScalingActive", "True", "DemandRose", "2 replicas would be busy for 86% of their time"),
                condition("CacheEffective", "True", "Healthy", "93% of prompt tokens found, of 95% that repeat"),
            ],
            "revision": short(FINGERPRINT),
            "fingerprint": FINGERPRINT,
            "warm": "2/3",
            "replicas": 3,
            "hitRate": "93%",
            "revisions": [{**revision, "weight": 100, "phase": "Serving"}],
        },
    }


def route() -> dict[str, Any]:
    """Return the group's PromptRoute."""
    slots = [
        (0, "Ready", "support-9f2c61d0-6b9c7-2xk4p"),
        (1, "Ready", "support-9f2c61d0-6b9c7-8tqwz"),
        (2, "Absent", ""),
    ]
    listed = [{"slot": slot, "state": state} | ({"pod": pod} if pod else {}) for slot, state, pod in slots]
    revision = {"fingerprint": FINGERPRINT, "weight": 100, "slots": listed}
    return {"metadata": {"namespace": "chat", "name": "support"}, "spec": {"revisions": [revision]}}


def pod(name: str, status: str, reason: str, message: str) -> dict[str, Any]:
    """Return an engine's pod."""
    gate = {"type": "promptgroup.dev/prefix-warm", "status": status, "reason": reason, "message": message}
    ready = {"type": "ContainersReady", "status": "True", "lastTransitionTime": CREATED}
    return {
        "metadata": {
            "namespace": "chat",
            "name": name,
            "uid": name,
            "creationTimestamp": CREATED,
            "labels": {"promptgroup.dev/group": "support"},
            "annotations": {"promptgroup.dev/fingerprint": FINGERPRINT, "promptgroup.dev/warmed-container": "c"},
        },
        "spec": {"containers": [{"name": "engine"}]},
        "status": {
            "podIP": "10.0.0.1",
            "conditions": [{**gate, "lastTransitionTime": CREATED}, ready],
            "containerStatuses": [{"name": "engine", "containerID": "c", "state": {"running": {}}}],
        },
    }


def status() -> str:
    """Return what `promptgroup status` prints of the group."""
    pods = [
        pod("support-9f2c61d0-6b9c7-2xk4p", "True", "PrefixCached", "96 of 96 prefix tokens in cache"),
        pod("support-9f2c61d0-6b9c7-8tqwz", "True", "PrefixCached", "96 of 96 prefix tokens in cache"),
        pod("support-9f2c61d0-6b9c7-m7vqd", "False", "Warming", "the prefix is being computed"),
    ]
    return status_command.table([group_status(group(), route(), pods)], namespaces=False)


def top() -> str:
    """Return one frame of `promptgroup top`."""
    replicas = tuple(
        ReplicaRate(
            "chat/support", short(FINGERPRINT), slot, in_flight=running, wait=wait, sessions=sessions, filled=filled
        )
        for slot, running, wait, sessions, filled in ((0, 3, 0.0, 14, 0.31), (1, 5, 0.18, 17, 0.38))
    )
    rates = TopRates(requests=21.3, hit_rate=0.927, median=0.023, late=0.051, in_flight=8, waiting=0, replicas=replicas)
    frame = top_command.TopFrame(
        now=NOW,
        seconds=3.0,
        routers=2,
        silent=(),
        states={"chat/support": top_command.TopState(ready=False, warm="2/3")},
        rates={"chat/support": rates},
    )
    return top_command.table(frame)


def recording(command: str, output: str) -> str:
    """Return a terminal with a command and its output, as SVG. The same text gives the same bytes."""
    console = Console(record=True, width=WIDTH, file=io.StringIO(), color_system=None, legacy_windows=False)
    console.print(Text(f"$ {command}", style="bold"), highlight=False)
    console.print(Text(output.rstrip("\n")), highlight=False)
    return console.export_svg(title=command, unique_id=command.split()[1], code_format=FORMAT)


def files() -> dict[Path, str]:
    """Return path → text of each recording."""
    return {
        ASSETS / "status.svg": recording("promptgroup status support -n chat", status()),
        ASSETS / "top.svg": recording("promptgroup top -n chat --once", top()),
    }
