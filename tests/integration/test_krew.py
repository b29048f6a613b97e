"""The archive of the kubectl plugin runs from where it was unpacked, with nothing of this environment."""

import os
import platform
import subprocess
import sys
import tarfile
from pathlib import Path

import pytest

from promptgroup_local import lab

pytestmark = pytest.mark.integration

PROMPT = "You are the support assistant of Example Ltd."


@pytest.fixture(scope="module")
def plugin(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The launcher, as krew leads to it: through a link."""
    folder = tmp_path_factory.mktemp("krew")
    machine = {"x86_64": "amd64", "aarch64": "arm64"}[platform.machine()]
    python = f"{sys.version_info.major}.{sys.version_info.minor}"
    wanted = [f"--platform=linux-{machine}", f"--python={python}", f"--output={folder}"]
    command = [sys.executable, str(lab.ROOT / "scripts/krew_archive.py"), *wanted]
    subprocess.run(command, check=True, timeout=300, capture_output=True)
    with tarfile.open(folder / f"kubectl-promptgroup-linux-{machine}.tar.gz") as archive:
        archive.extractall(folder / "store", filter="data")
    link = folder / "bin" / "kubectl-promptgroup"
    link.parent.mkdir()
    link.symlink_to("../store/kubectl-promptgroup")
    (link.parent / "python3").symlink_to(os.path.realpath(sys.executable))
    return link


def run(plugin: Path, *arguments: str, **more: str) -> subprocess.CompletedProcess[str]:
    environment = {"PATH": f"{plugin.parent}:/usr/bin:/bin", "HOME": str(plugin.parent), **more}
    return subprocess.run(
        [plugin, *arguments], env=environment, cwd="/", capture_output=True, text=True, timeout=60, check=False
    )


def test_the_plugin_says_its_version(plugin: Path) -> None:
    done = run(plugin, "--version")
    assert (done.returncode, done.stderr) == (0, "")
    assert "0.1.0" in done.stdout


def test_every_command_starts(plugin: Path) -> None:
    for command in ("plan", "size", "status", "top", "explain", "lint", "fingerprint"):
        done = run(plugin, command, "--help")
        assert (done.returncode, done.stderr) == (0, ""), command
        assert done.stdout.startswith(f"usage: kubectl promptgroup {command}")


def test_it_computes(plugin: Path, tmp_path: Path) -> None:
    (tmp_path / "prompt.txt").write_text(PROMPT)
    done = run(plugin, "fingerprint", str(tmp_path / "prompt.txt"))
    own = subprocess.run(
        [Path(sys.executable).with_name("promptgroup"), "fingerprint", tmp_path / "prompt.txt"],
        capture_output=True,
        text=True,
        timeout=60,
        check=True,
    )
    assert (done.returncode, done.stdout) == (0, own.stdout)


def test_an_unsupported_python_is_named_in_one_line(plugin: Path) -> None:
    store = plugin.resolve().parent
    own = next(path for path in (store / "lib").iterdir() if path.name.startswith("cp"))
    own.rename(own.with_name("cp30"))
    try:
        done = run(plugin, "--version")
    finally:
        own.with_name("cp30").rename(own)
    assert done.returncode == 2
    assert done.stderr.count("\n") == 1
    assert "needs Python 3" in done.stderr
