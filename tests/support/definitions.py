"""Definitions of other projects' kinds, from the Go modules in which they publish them."""

import json
import shutil
import subprocess
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from functools import cache
from pathlib import Path
from typing import Any

import pytest
import yaml

from promptgroup_local.kubectl import Kubectl

Modules = Mapping[str, tuple[str, tuple[str, ...]]]
"""Go module with its version → pattern of the files with its definitions, and the kinds that are taken."""


@cache
def module_folder(module: str) -> Path:
    """Return the folder with a module's files; the test is skipped where the module cannot be downloaded."""
    if shutil.which("go") is None:
        pytest.skip(f"NO GO HERE, so that the definitions of {module} cannot be had")
    command = ["go", "mod", "download", "-json", module]
    done = subprocess.run(command, capture_output=True, text=True, timeout=120, check=False, cwd="/")
    if done.returncode != 0:
        pytest.skip(f"{module} CANNOT BE HAD, so that samples are not compared with it: {done.stderr.strip()[-100:]}")
    return Path(json.loads(done.stdout)["Dir"])


def definitions(modules: Modules) -> list[dict[str, Any]]:
    """Return the CustomResourceDefinitions of all kinds that are named."""
    result = []
    for module, (pattern, kinds) in modules.items():
        for path in sorted(module_folder(module).glob(pattern)):
            objects = yaml.load_all(path.read_text(), yaml.CSafeLoader)
            result += [
                one for one in objects if one and one["kind"] == "CustomResourceDefinition" and _kind(one) in kinds
            ]
    assert sorted(map(_kind, result)) == sorted(kind for _, kinds in modules.values() for kind in kinds)
    return result


@contextmanager
def defined(kube: Kubectl, modules: Modules) -> Iterator[None]:
    """Let the API server have these kinds."""
    made = definitions(modules)
    names = [definition["metadata"]["name"] for definition in made]
    try:
        # on the server's side: some are larger than the annotation in which kubectl keeps what it applied
        listed = {"apiVersion": "v1", "kind": "List", "items": made}
        kube.run("apply", "--server-side", "-f", "-", stdin=json.dumps(listed))
        kube.run("wait", *(f"crd/{name}" for name in names), "--for=condition=Established", "--timeout=30s")
        yield
    finally:
        kube.run("delete", "crd", *names, "--ignore-not-found")


def take(kube: Kubectl, manifest: dict[str, Any]) -> None:
    """Have the API server check an object as it is written; unknown fields and warnings are failures."""
    done = kube.run("create", "--dry-run=server", "--validate=strict", "-f", "-", stdin=json.dumps(manifest))
    assert "Warning" not in done.stderr, done.stderr


def _kind(definition: dict[str, Any]) -> str:
    kind: str = definition["spec"]["names"]["kind"]
    return kind
