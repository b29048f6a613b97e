"""The files at the contributor's door: they are there, and what they name exists."""

import re
from pathlib import Path

import pytest

from support.yamlfiles import document

ROOT = Path(__file__).parents[3]
PAGES = ("CONTRIBUTING.md", "SECURITY.md", "CODE_OF_CONDUCT.md", "CHANGELOG.md")
MAKE = re.findall(r"^([a-z0-9-]+):", (ROOT / "Makefile").read_text(), re.MULTILINE)


@pytest.mark.parametrize("page", PAGES)
def test_links_lead_somewhere(page):
    links = re.findall(r"\]\((?!https?:)([^)#]+)[^)]*\)", (ROOT / page).read_text())
    assert links
    assert [link for link in links if not (ROOT / link).exists()] == []


def test_files_that_contributors_are_sent_to_exist():
    named = re.findall(
        r"`((?:operator|router|tests|manifests|docs|scripts|e2e)/[\w./-]+)`", (ROOT / PAGES[0]).read_text()
    )
    assert len(named) > 5
    assert [name for name in named if not (ROOT / name).exists()] == []


@pytest.mark.parametrize("page", [*PAGES, ".github/pull_request_template.md"])
def test_make_targets_that_pages_name_exist(page):
    assert [
        each for each in re.findall(r"\bmake ([a-z][a-z0-9-]*)", (ROOT / page).read_text()) if each not in MAKE
    ] == []


def test_workflows_run_what_developers_run():
    """Each command of a workflow that tests something is a make target, so that it can be run on any machine."""
    for path in (ROOT / ".github/workflows").glob("*.yaml"):
        workflow = document(path.read_text())
        lines = [step["run"] for job in workflow["jobs"].values() for step in job["steps"] if "run" in step]
        made = [target for line in lines for target in re.findall(r"^make ([a-z0-9-]+)", line)]
        assert made, path.name
        assert [target for target in made if target not in MAKE] == [], path.name


def test_workflows_have_no_more_rights_than_they_need():
    for path in (ROOT / ".github/workflows").glob("*.yaml"):
        workflow = document(path.read_text())
        assert workflow["permissions"] == {"contents": "read"}, path.name
        triggers = workflow[True]  # YAML 1.1 reads `on` so
        assert "pull_request_target" not in triggers, path.name
        for name, job in workflow["jobs"].items():
            assert "timeout-minutes" in job, f"{path.name}: {name}"
            if "pull_request" in triggers and name != "publish":
                assert "permissions" not in job, f"{path.name}: {name}: code of strangers runs here"
            for step in job["steps"]:
                if step.get("uses", "").startswith("actions/checkout@"):
                    assert step["with"]["persist-credentials"] is False, f"{path.name}: {name}"


def test_what_others_write_never_reaches_a_shell():
    """Titles and branch names of strangers are no part of a script; a version is checked before it is used."""
    for path in (ROOT / ".github").rglob("*.y*ml"):
        for script in re.findall(r"run: (?:\|\n(?: {10,}.*\n)+|.*\n)", path.read_text()):
            assert "github.event" not in script, path.name
            assert "github.head_ref" not in script, path.name


@pytest.mark.heavy
def test_every_manifest_of_dependencies_is_kept_current():
    updates = document((ROOT / ".github/dependabot.yml").read_text())["updates"]
    folders = {
        each["package-ecosystem"]: [
            folder.relative_to(ROOT).as_posix()
            for pattern in each.get("directories", [each.get("directory")])
            for folder in (ROOT.glob(pattern.strip("/")) if pattern != "/" else [ROOT])
        ]
        for each in updates
    }
    skipped = {".venv", ".git", ".cache", "node_modules"}
    for ecosystem, name in (("gomod", "go.mod"), ("docker", "Dockerfile"), ("uv", "uv.lock")):
        there = {
            path.parent.relative_to(ROOT).as_posix()
            for path in ROOT.rglob(name)
            if not any(part in skipped or part.startswith(".venv") for part in path.relative_to(ROOT).parts)
        }
        assert there == set(folders[ecosystem]), ecosystem
