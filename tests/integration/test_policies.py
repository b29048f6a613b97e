"""kube-score's checks of what Kustomize makes of manifests/, but for those that do not fit, each with the reason."""

import json
import subprocess
from typing import Any

import pytest
import yaml

from support.install import kustomized, tool

pytestmark = pytest.mark.integration

WANTED = ("container-seccomp-profile", "container-ports-check")
"""Checks that are not made by default."""
EVERY = ""
OPERATOR, ENGINES, WORKERS = "promptgroup-operator", "promptgroup-engines", "promptgroup-engine-workers"
LEFT_OUT = {
    ("container-image-pull-policy", EVERY): "a tag is never moved; with Always a start would need the registry",
    ("container-ephemeral-storage-request-and-limit", EVERY): "nothing is written: read-only root, volumes in memory",
    ("deployment-has-host-podantiaffinity", EVERY): "spread over hosts and zones by topologySpreadConstraints instead",
    ("pod-probes", OPERATOR): "nobody sends it requests: one that is alive is ready",
    ("networkpolicy-targets-pod", ENGINES): "the operator makes the pods that it is for",
    ("networkpolicy-targets-pod", WORKERS): "the operator makes the pods that it is for",
    ("networkpolicy-targets-pod", f"{OPERATOR}-to-engines"): "the operator makes the pods that it is for",
    ("networkpolicy-targets-pod", f"{OPERATOR}-to-router"): "routers come from a folder of their own",
}
"""Check, object → why not. CPU has no limit anywhere: throttling makes routers slow while cores are idle."""


def findings(program: str, folder: str) -> dict[tuple[str, str], list[str]]:
    """Check, object → what is said, of every check that did not pass."""
    flags = ["--output-format=json", "--ignore-container-cpu-limit", *(f"--enable-optional-test={x}" for x in WANTED)]
    done = subprocess.run(
        [program, "score", *flags, "-"],
        input=yaml.safe_dump_all(kustomized(folder).values()),
        capture_output=True,
        text=True,
        timeout=60,
        check=False,
    )
    found: list[dict[str, Any]] = json.loads(done.stdout)
    return {
        (check["check"]["id"], each["object_meta"]["name"]): [said["summary"] for said in check["comments"] or ()]
        for each in found
        for check in each["checks"]
        if not check["skipped"] and check["grade"] < PASSED
    }


PASSED = 10
"""Grade of a check that found nothing."""


def test_every_check_passes_or_is_left_out_for_a_reason() -> None:
    found = {}
    for folder in (".", "operator-namespaced", "router", "overlays/monitoring"):
        found |= findings(tool("kube-score"), folder)
    known = {(check, name) for check, name in found for left in ((check, name), (check, EVERY)) if left in LEFT_OUT}
    assert {each: said for each, said in found.items() if each not in known} == {}
    assert {(check, EVERY) if (check, EVERY) in LEFT_OUT else (check, name) for check, name in known} == set(LEFT_OUT)
