"""What images are made of is checked by hash, and releases name their base and their images by digest."""

import os
import re
import subprocess
import tomllib
from pathlib import Path

from support.yamlfiles import document

ROOT = Path(__file__).parents[3]
DOCKERFILE = (ROOT / "Dockerfile").read_text().replace("\\\n", " ")
RELEASE = (ROOT / ".github/workflows/release.yaml").read_text()


def test_every_stage_is_the_base_or_an_earlier_stage():
    stages = re.findall(r"^FROM (\S+)(?: AS (\S+))?$", DOCKERFILE, re.MULTILINE)
    names = {name for _, name in stages}
    assert {base for base, _ in stages} - names == {"${BASE}"}
    sources = re.findall(r"^COPY --from=(\S+)", DOCKERFILE, re.MULTILINE)
    assert set(sources) <= names
    assert not re.search(r"^ADD |\bcurl\b|\bwget\b", DOCKERFILE, re.MULTILINE)


def test_only_the_compiler_comes_from_the_bases_archive_and_no_image_holds_it():
    """Apt checks the signature of what it installs; `compiler` is built from, and nothing but its output is copied."""
    stages = dict(re.findall(r"^FROM \S+ AS (\S+)$(.*?)(?=^FROM |\Z)", DOCKERFILE, re.MULTILINE | re.DOTALL))
    assert [name for name, lines in stages.items() if "apt-get" in lines] == ["compiler"]
    assert not re.search(r"unauthenticated|trusted=|allow-insecure", DOCKERFILE)
    assert set(re.findall(r"^COPY --from=compiler (.*)$", DOCKERFILE, re.MULTILINE)) == {"/build/compiled router"}
    assert not re.search(r"^FROM compiler\b", DOCKERFILE, re.MULTILINE)


def test_everything_that_is_installed_is_checked_by_hash():
    commands = [line for line in DOCKERFILE.splitlines() if line.startswith("RUN ")]
    installs = [each for each in commands if "pip install" in each]
    assert len(installs) == 1
    assert "--require-hashes" in installs[0]
    assert "--only-binary=:all:" in installs[0]
    assert {each.split()[1:3] == ["uv", "sync"] for each in commands if "uv " in each.replace("pip", "")} == {True}
    # with it uv takes the lock as it is, which has the hashes that it checks
    assert re.search(r"\bUV_FROZEN=1\b", DOCKERFILE)
    installer = (ROOT / "images/uv.txt").read_text()
    assert [line.split("==")[0] for line in installer.splitlines() if "==" in line and line[0] != "#"] == ["uv"]
    assert len(re.findall(r"--hash=sha256:[0-9a-f]{64}\b", installer)) > 1


def test_every_locked_file_has_a_hash():
    lock = tomllib.loads((ROOT / "uv.lock").read_text())
    files = [
        (package["name"], each)
        for package in lock["package"]
        if "registry" in package["source"]
        for each in [*package.get("wheels", []), *([package["sdist"]] if "sdist" in package else [])]
    ]
    assert len(files) > 100
    assert [name for name, each in files if not each.get("hash", "").startswith("sha256:")] == []
    others = [
        each["name"] for each in lock["package"] if not {"registry", "editable", "virtual"} & each["source"].keys()
    ]
    assert others == []


def test_nobody_else_can_own_the_registry_that_a_checkout_names():
    """RFC 2606 keeps `invalid`: no registry will ever answer to such a name. Releases put their own in its place.

    The samples of GitOps have `registry.example.com` where the reader's own belongs: RFC 2606 keeps that as well.
    """
    named = document((ROOT / "manifests/images/kustomization.yaml").read_text())["images"]
    registries = {each["newName"].partition("/")[0] for each in named} | {
        each["name"].partition("/")[0] for each in named
    }
    chart = document((ROOT / "charts/promptgroup/values.yaml").read_text())
    assert registries == {chart["imageRegistry"].partition("/")[0]} == {"promptgroup.invalid"}
    others = re.compile(r"([^\s=]+)/(?:operator|router|picker|standin-engine):\d")
    manifests = {path: path.read_text() for path in (ROOT / "manifests").rglob("*.yaml")}
    samples = {path for path in manifests if path.is_relative_to(ROOT / "manifests/gitops")}
    for path, text in manifests.items():
        kept = {"promptgroup.invalid", *(["registry.example.com/promptgroup"] if path in samples else [])}
        assert set(others.findall(text)) <= kept


def test_images_are_built_under_the_names_that_the_manifests_have(tmp_path):
    docker = tmp_path / "docker"
    docker.write_text('#!/bin/sh\necho "$@" >> "$(dirname "$0")/said"\n')
    docker.chmod(0o755)
    path = f"{tmp_path}:{os.environ['PATH']}"

    def built(*settings):
        (tmp_path / "said").unlink(missing_ok=True)
        command = ["make", "--silent", "images", *settings]
        subprocess.run(command, cwd=ROOT, env={**os.environ, "PATH": path}, check=True, timeout=60)
        return re.findall(r"--tag (\S+)", (tmp_path / "said").read_text())

    named = document((ROOT / "manifests/images/kustomization.yaml").read_text())["images"]
    names = {f"{each['newName']}:{each['newTag']}" for each in named}
    assert set(built()) == names | {"promptgroup.invalid/standin-engine:0.1.0"}
    assert "registry.example.com/x/picker:v2" in built("REGISTRY=registry.example.com/x", "TAG=v2")


def test_a_release_resolves_its_base_and_names_its_images_by_digest():
    jobs = document(RELEASE)["jobs"]
    steps = [step for job in jobs.values() for step in job.get("steps", [])]
    resolved = [
        step for step in steps if "imagetools inspect" in step.get("run", "") and "GITHUB_OUTPUT" in step["run"]
    ]
    assert any(re.search(r"base=\$base@\$digest", step["run"]) for step in resolved)
    builds = [step for step in steps if step.get("uses", "").startswith("docker/build-push-action@")]
    assert builds
    assert jobs["check"]["outputs"]["base"] == "${{ steps.base.outputs.base }}"
    assert all("BASE=${{ needs.check.outputs.base }}" in step["with"]["build-args"] for step in builds)
    assert all(step["with"]["sbom"] and step["with"]["provenance"] for step in builds)
    assert "--operator-digest" in RELEASE
    assert "--router-digest" in RELEASE
    assert "--picker-digest" in RELEASE
