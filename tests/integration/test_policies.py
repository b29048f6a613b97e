"""kube-score's checks of what Kustomize makes of manifests/, but for those that do not fit, each with the reason."""

import json
import subprocess
from typing import Any

import pytest
import yaml

from support.install import kustomized, tool

pytestmark = pytest.mark.integration

LEFT_OUT: dict[str, str] = {}


def findings(program: str, folder: str) -> list[str]:
    """Check, object, what is said, of every check that did not pass."""
    flags = [f"--ignore-test={each}" for each in LEFT_OUT]
    done = subprocess.run(
        [program, "score", "--output-format=json", "--all-default-optional", *flags, "-"],
        input=yaml.safe_dump_all(kustomized(folder).values()),
        capture_output=True,
        text=True,
        timeout=60,
        check=False,
    )
    found: list[dict[str, Any]] = json.loads(done.stdout)
    assert found, done.stderr
    return [
        f"{check['check']['id']}: {each['object_name']}: {[said['summary'] for said in check['comments'] or ()]}"
        for each in found
        for check in each["checks"]
        if not check["skipped"] and check["grade"] < 10
    ]


@pytest.mark.parametrize("folder", [".", "overlays/monitoring", "operator-namespaced"])
def test_every_check_passes(folder: str) -> None:
    assert findings(tool("kube-score"), folder) == []
