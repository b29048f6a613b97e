"""The oldest uv that takes part in this project, and where the Makefile has one from."""

import os
import re
import shutil
import subprocess
import tomllib
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[3]
PROJECT = tomllib.loads((ROOT / "pyproject.toml").read_text())
WRITES = {5: "0.13"}
"""Revision of a lock file → the first uv that writes it; read by all that have its version."""


def test_the_bound_is_the_first_that_writes_the_lock_as_it_is():
    lock = tomllib.loads((ROOT / "uv.lock").read_text())
    assert lock["version"] == 1
    assert PROJECT["tool"]["uv"]["required-version"] == f">={WRITES[lock['revision']]}"


def test_the_images_installer_is_within_the_bound():
    installed = re.search(r"^uv==([0-9.]+)", (ROOT / "images/uv.txt").read_text(), re.MULTILINE)
    assert installed is not None
    assert _numbers(installed[1]) >= _numbers(PROJECT["tool"]["uv"]["required-version"].removeprefix(">="))


def _numbers(version):
    return [int(each) for each in version.split(".")]


@pytest.mark.parametrize(
    ("said", "taken"),
    [("uv 0.13.0", True), ("uv 0.13.9 (abc 2026-11-01)", True), ("uv 1.0.0", True), ("uv 0.12.24", False),
     ("uv 0.9.30", False), ("", False)],
)  # fmt: skip
def test_make_takes_the_uv_of_the_path_where_it_is_new_enough(tmp_path, said, taken):
    for name in ("Makefile", "pyproject.toml"):
        shutil.copy(ROOT / name, tmp_path)
    path = tmp_path / "bin"
    path.mkdir()
    (path / "uv").write_text(f"#!/bin/sh\necho '{said}'\n")
    (path / "uv").chmod(0o755)
    environment = {**os.environ, "PATH": f"{path}:{os.environ['PATH']}"}
    command = ["make", "--dry-run", "setup"]
    done = subprocess.run(command, cwd=tmp_path, env=environment, capture_output=True, text=True, check=True)
    mine = f"{tmp_path}/.cache/uv/bin/uv"
    assert f"{path / 'uv' if taken else mine} sync" in done.stdout
    assert ("no uv of 0.13 or newer on the PATH: .cache/uv gets one" in done.stdout) != taken
