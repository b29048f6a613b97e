"""README: images that run as nobody, on a root they cannot write to, and are the same in every build."""

import hashlib
import io
import json
import subprocess
import tarfile

import pytest

from harness.cluster import shell
from harness.images import TARGETS, Images, build_again

MOST_MEGABYTES = {"operator": 350, "router": 220, "standin-engine": 240}
"""Uncompressed, the base of about 130 MB included."""


def inspect(name: str) -> dict:
    return json.loads(shell("docker", "image", "inspect", name))[0]


@pytest.mark.parametrize("image", TARGETS.values())
def test_an_image_is_small_and_runs_one_process_as_nobody(images: Images, image: str) -> None:
    found = inspect(images.name(image))
    config = found["Config"]
    assert config["User"] == "10001:10001"
    assert config["Entrypoint"][0] == "/opt/promptgroup/bin/python"
    assert "Healthcheck" not in config
    assert found["Size"] < MOST_MEGABYTES[image] * 1e6


@pytest.mark.parametrize("image", TARGETS.values())
def test_an_image_needs_no_right_and_no_shell(images: Images, image: str) -> None:
    strict = ("--read-only", "--cap-drop=ALL", "--security-opt=no-new-privileges", "--network=none")
    helped = shell("docker", "run", "--rm", *strict, images.name(image), "--help")
    assert helped.startswith("usage: ")


def test_the_router_of_an_image_is_compiled_and_its_compiler_stays_out(images: Images) -> None:
    program = "import shutil; from promptgroup_router.base import build; print(build.compiled(), shutil.which('gcc'))"
    python = ("--entrypoint", "/opt/promptgroup/bin/python")
    assert shell("docker", "run", "--rm", *python, images.name("router"), "-c", program).split() == ["True", "None"]


def files(name: str) -> dict[str, tuple[int, int, int, str]]:
    """Path → mode, owner, time and digest of all that an image adds to its base."""
    container = shell("docker", "create", name).strip()
    try:
        exported = subprocess.run(
            ["docker", "cp", f"{container}:/opt/promptgroup", "-"], capture_output=True, check=True
        )
    finally:
        shell("docker", "rm", container)
    found = {}
    with tarfile.open(fileobj=io.BytesIO(exported.stdout)) as archive:
        for member in archive:
            content = archive.extractfile(member) if member.isfile() else None
            digest = hashlib.sha256(content.read()).hexdigest() if content is not None else member.linkname
            found[member.name] = (member.mode, member.uid, int(member.mtime), digest)
    return found


@pytest.fixture(scope="module")
def rebuilt() -> dict[str, str]:
    return build_again()


@pytest.mark.parametrize("target", TARGETS)
def test_two_builds_make_the_same_files(images: Images, rebuilt: dict[str, str], target: str) -> None:
    first, second = files(images.name(TARGETS[target])), files(rebuilt[target])
    assert {path for path in first.keys() | second.keys() if first.get(path) != second.get(path)} == set()
    assert len(first) > 100
