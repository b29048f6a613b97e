"""Workflows fail where a command of theirs does, take any owner's name, end, and have no rights but those they name."""

import re
from pathlib import Path

import pytest

from support.yamlfiles import document

ROOT = Path(__file__).parents[3]
WORKFLOWS = {path.stem: path.read_text() for path in (ROOT / ".github/workflows").glob("*.yaml")}


@pytest.mark.parametrize("name", WORKFLOWS)
def test_a_pipe_fails_with_each_of_its_commands(name):
    """A shell that is not named is `bash -e`; one that is named `bash` has pipefail as well."""
    workflow = document(WORKFLOWS[name])
    usual = workflow.get("defaults", {}).get("run", {}).get("shell")
    steps = [step for job in workflow["jobs"].values() for step in job["steps"]]
    piped = [step for step in steps if re.search(r"[^|]\|[^|]", step.get("run", ""))]
    assert [step["run"] for step in piped if step.get("shell", usual) != "bash"] == []


@pytest.mark.parametrize("name", WORKFLOWS)
def test_each_job_has_an_end_and_the_rights_that_it_names(name):
    workflow = document(WORKFLOWS[name])
    assert workflow["permissions"] == {"contents": "read"}
    assert [key for key, job in workflow["jobs"].items() if "timeout-minutes" not in job] == []


def test_each_action_is_named_by_a_commit_and_says_its_version():
    """Whoever owns an action can move its tags; Dependabot keeps commit and version in step."""
    files = [path for path in (ROOT / ".github").rglob("*.y*ml") if "uses:" in path.read_text()]
    lines = [line for path in files for line in path.read_text().splitlines()]
    used = [line.partition("uses:")[2].strip() for line in lines if "uses:" in line]
    assert len(used) > 40
    assert [each for each in used if not re.fullmatch(r"\./\S+|[\w./-]+@[0-9a-f]{40} # v\d+\.\d+\.\d+", each)] == []
    commits = {tuple(each.split("@")) for each in used if "@" in each}
    assert len(commits) == len({name for name, _ in commits}), "one action has several commits"


def test_dependencies_are_audited_each_night():
    jobs = document(WORKFLOWS["nightly"])["jobs"]
    assert "make audit" in [step.get("run") for step in jobs["audit"]["steps"]]
    target = (ROOT / "Makefile").read_text().partition("\naudit:")[2].partition("\n\n")[0]
    assert "pip-audit==" in target
    assert all(word in target for word in ("--frozen", "--all-extras", "--all-groups"))


def test_a_registry_takes_the_name_of_any_owner():
    """GitHub's owners may have capitals, which no image's name may have."""
    for text in WORKFLOWS.values():
        assert not re.search(r"ghcr\.io/\$\{\{ *github\.", text)
    jobs = document(WORKFLOWS["release"])["jobs"]
    (step,) = (each for each in jobs["check"]["steps"] if each.get("id") == "registry")
    assert "${GITHUB_REPOSITORY_OWNER,,}" in step["run"]


def test_no_platform_of_an_image_is_emulated():
    release = document(WORKFLOWS["release"])
    assert "qemu" not in WORKFLOWS["release"].lower()
    build = release["jobs"]["build"]
    runners = {each["platform"]: each["runner"] for each in build["strategy"]["matrix"]["include"]}
    assert set(runners) == set(build["strategy"]["matrix"]["platform"])
    assert all(runner.endswith("-arm") == (platform == "arm64") for platform, runner in runners.items())
