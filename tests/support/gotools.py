"""Programs of others that tests run. The first of these that has one:

1. a variable of its name, the path of a program: PROMETHEUS, PROMTOOL, HELM, KUBE_SCORE, ACTIONLINT, LWS,
   KUSTOMIZE_CONTROLLER, ARGOCD
2. PATH (Debian: apt install prometheus)
3. the cache that an earlier run filled
4. built from its Go module (tests/support/go), where a module proxy can be reached
"""

import fcntl
import os
import re
import shutil
import subprocess
import sys
from dataclasses import dataclass
from pathlib import Path

MODULES = Path(__file__).parent / "go"
BUILD_SECONDS = 3600
"""Longest build in seconds: some five minutes on two cores, half an hour where twenty other programs run on them."""


@dataclass(frozen=True, slots=True)
class Tool:
    """How a program is built."""

    folder: str
    """Of its Go module, under tests/support/go."""
    module: str
    package: str
    """The module's package that is built, `.` for that of the folder, which has a part of the module's programs."""
    flags: tuple[str, ...] = ()


# without service discovery, which is most of its dependencies, and without the web interface's files
PROMETHEUS_FLAGS = ("-tags=remove_all_sd,netgo",)
TOOLS = {
    "prometheus": Tool("prometheus", "github.com/prometheus/prometheus", "cmd/prometheus", PROMETHEUS_FLAGS),
    "promtool": Tool("prometheus", "github.com/prometheus/prometheus", "cmd/promtool", PROMETHEUS_FLAGS),
    "helm": Tool("helm", "helm.sh/helm/v4", "cmd/helm"),
    "kube-score": Tool("kube-score", "github.com/zegl/kube-score", "cmd/kube-score"),
    "kustomize-controller": Tool("kustomize-controller", "github.com/fluxcd/kustomize-controller", ""),
    "actionlint": Tool("actionlint", "github.com/rhysd/actionlint", "cmd/actionlint"),
    # two of its programs alone: all of them have a third more packages, and the largest
    "argocd": Tool("argocd", "github.com/argoproj/argo-cd/v3", "."),
    "lws": Tool("lws", "sigs.k8s.io/lws", "cmd"),
}


class MissingToolError(Exception):
    """No source has the program; the message is one line with each way out."""


def program(name: str, *, build: bool = True) -> str:
    """Path of a program.

    Args:
        name: one of TOOLS.
        build: whether it is built where it is not there.

    Raises:
        MissingToolError: it is not there and cannot be built.
    """
    variable = name.upper().replace("-", "_")
    found = os.environ.get(variable) or shutil.which(name)
    if found:
        return found
    tool = TOOLS[name]
    base = Path(os.environ.get("XDG_CACHE_HOME") or Path.home() / ".cache")
    folder = base / "promptgroup" / name / pinned(name)
    folder.mkdir(parents=True, exist_ok=True)
    built = folder / name
    with (folder / ".lock").open("w") as lock:
        fcntl.flock(lock, fcntl.LOCK_EX)
        if not built.exists():
            if not build:
                raise MissingToolError(f"no {name}: set {variable}, or run python -m support.gotools {name} in tests/")
            if shutil.which("go") is None:
                raise MissingToolError(f"no {name}: set {variable}, put it on the PATH, or install Go to build it")
            _build(tool, built)
    return str(built)


def pinned(name: str) -> str:
    """Release of a program's module, as in `v1.36.3`."""
    tool = TOOLS[name]
    found = re.search(rf"{re.escape(tool.module)} (v[0-9.]+)", (MODULES / tool.folder / "go.mod").read_text())
    assert found is not None
    return found[1]


def _build(tool: Tool, path: Path) -> None:
    flags = ["-trimpath", "-buildvcs=false", "-ldflags=-s -w", *tool.flags, f"-o={path}.new"]
    package = tool.package if tool.package == "." else f"{tool.module}/{tool.package}".rstrip("/")
    done = subprocess.run(
        ["go", "build", *flags, package],
        cwd=MODULES / tool.folder,
        env={**os.environ, "CGO_ENABLED": "0", "GOFLAGS": "-mod=readonly", "GOTOOLCHAIN": "local"},
        timeout=BUILD_SECONDS,
        capture_output=True,
        text=True,
        check=False,
    )
    if done.returncode != 0:
        raise MissingToolError(f"no {path.name}, and it cannot be built: {' '.join(done.stderr.split())[-300:]}")
    Path(f"{path}.new").rename(path)


if __name__ == "__main__":
    for wanted in sys.argv[1:]:
        sys.stdout.write(f"{program(wanted)}\n")
