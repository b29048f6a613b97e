"""The command line under the real kubectl: as a plugin, and as what completes the plugin's words."""

import os
import sys
from importlib.metadata import version
from pathlib import Path
from subprocess import CompletedProcess, run

import pytest

from promptgroup_contract.fingerprint import fingerprint
from promptgroup_local.cluster import binaries

pytestmark = pytest.mark.integration

SCRIPTS = Path(sys.executable).parent


def kubectl(*words: str, stdin: str = "") -> CompletedProcess[str]:
    path = os.pathsep.join((str(SCRIPTS), os.environ["PATH"]))
    command = [binaries.kubectl(binaries.find()), *words]
    return run(
        command, input=stdin, env=os.environ | {"PATH": path}, capture_output=True, text=True, check=False, timeout=60
    )


def test_kubectl_runs_it() -> None:
    ran = kubectl("promptgroup", "fingerprint", "-", stdin="Be kind.")
    assert (ran.returncode, ran.stdout.split()[0]) == (0, fingerprint("Be kind."))
    assert kubectl("promptgroup", "lint", "-", stdin="Be kind.").returncode == 1
    assert kubectl("promptgroup", "lint").stderr.startswith("kubectl promptgroup lint: the following arguments are")
    assert kubectl("promptgroup", "--version").stdout == f"promptgroup {version('promptgroup')}\n"


def test_kubectl_completes_it() -> None:
    lines = kubectl("__complete", "promptgroup", "fing").stdout.splitlines()
    assert lines == ["fingerprint\tprint the fingerprint of a prompt, a request or a PromptGroup", ":0"]
    assert "--fail-on\t" in kubectl("__complete", "promptgroup", "lint", "--f").stdout
    assert kubectl("__complete", "promptgroup", "lint", "--fail-on", "err").stdout.startswith("error\t")
