"""Pages lead somewhere: links, paths of files, commands and samples that they name are there."""

import re
import subprocess
import sys
from itertools import pairwise
from pathlib import Path

import pytest

from promptgroup_cli.__main__ import main
from promptgroup_operator.api.prompt_group import PromptGroupSpec
from support.yamlfiles import documents

ROOT = Path(__file__).parents[3]
PAGES = [ROOT / "README.md", *sorted((ROOT / "docs").rglob("*.md"))]
LINK = re.compile(r"(?<!!)\[[^\]]*\]\(([^)\s]+)\)")
CODE = re.compile(r"^( *)```(\w*)\n(.*?)^\1```", re.MULTILINE | re.DOTALL)
PACKAGES = (
    "",
    "operator/promptgroup_operator",
    "contract/promptgroup_contract",
    "router/promptgroup_router",
    "picker/promptgroup_picker",
    "cli",
    "lab",
    "tests",
)


def named(path: Path) -> str:
    return path.relative_to(ROOT).as_posix()


def links(path: Path) -> list[str]:
    """Links to files, without anchors; code is left out."""
    text = re.sub(r"`[^`\n]*`", "", CODE.sub("", path.read_text()))
    return [target.partition("#")[0] for target in LINK.findall(text) if not re.match(r"[a-z]+:|#", target)]


@pytest.mark.parametrize("path", PAGES, ids=named)
def test_links_lead_to_files(path):
    assert [target for target in links(path) if not (path.parent / target).exists()] == []


@pytest.mark.parametrize("path", PAGES, ids=named)
def test_pictures_are_there_and_say_what_they_show(path):
    pictures = re.findall(r"!\[([^\]]*)\]\(([^)\s]+)\)", path.read_text())
    assert [target for text, target in pictures if not text or not (path.parent / target).is_file()] == []


@pytest.mark.parametrize("path", PAGES, ids=named)
def test_files_of_the_repository_that_a_page_names_exist(path):
    tops = "operator|contract|router|cli|lab|tests|manifests|charts|crds|docs|e2e|images"
    text = CODE.sub("", path.read_text())
    paths = set(re.findall(rf"`((?:{tops})/[\w./-]+\.(?:py|md|yaml|json|txt|lua|svg))`", text))
    assert [each for each in sorted(paths) if not (ROOT / each).exists()] == []


def test_modules_that_the_architecture_names_exist():
    text = (ROOT / "docs/development/architecture.md").read_text()
    modules = set(re.findall(r"`((?:[a-z0-9_]+/)+[a-z0-9_]+\.py)`", text))
    assert len(modules) > 20
    missing = [each for each in sorted(modules) if not any((ROOT / top / each).exists() for top in PACKAGES)]
    assert missing == []


def test_the_site_has_every_page():
    listing = ("mkdocs.yml", "docs/development/decisions/index.md", "docs/research/index.md")
    site = "".join((ROOT / path).read_text() for path in listing)
    assert [
        path for path in PAGES[1:] if path.relative_to(ROOT / "docs").as_posix() not in site and path.name not in site
    ] == []


def test_the_glossary_is_in_order():
    words = re.findall(r"^## (.+)$", (ROOT / "docs/glossary.md").read_text(), re.MULTILINE)
    assert words == sorted(words, key=str.lower)


def test_the_readme_is_short():
    assert len((ROOT / "README.md").read_text().splitlines()) < 100


# --- what stands in code blocks ------------------------------------------------------------------------------------


def blocks(*languages):
    return [
        pytest.param(text, id=f"{named(path)}:{number}")
        for path in PAGES
        for number, (_, language, text) in enumerate(CODE.findall(path.read_text()))
        if language in languages
    ]


@pytest.mark.parametrize("text", blocks("yaml"))
def test_yaml_is_yaml_and_specs_have_known_fields_only(text):
    text = re.sub(r"^( *)--8<-- \"(.*)\"$", lambda found: (ROOT / found[2]).read_text(), text, flags=re.MULTILINE)
    for each in documents(text):
        if isinstance(each, dict):
            spec = each.get("spec") if each.get("kind", "PromptGroup") == "PromptGroup" else None
            for field, value in (spec or {}).items():
                assert unknown(PromptGroupSpec, {field: value}) == []


def unknown(model, value, at=""):
    """Paths of keys that a model does not know."""
    if not isinstance(value, dict) or not hasattr(model, "model_fields"):
        return []
    fields = {info.alias: info.annotation for info in model.model_fields.values()}
    found = []
    for key, inner in value.items():
        if key not in fields:
            found.append(f"{at}{key}")
            continue
        annotation = fields[key]
        arguments = [annotation, *getattr(annotation, "__args__", ())]
        (below,) = [each for each in arguments if hasattr(each, "model_fields")][:1] or (None,)
        found += unknown(below, inner, f"{at}{key}.")
    return found


def test_an_unknown_field_of_a_sample_is_found():
    assert unknown(PromptGroupSpec, {"rollout": {"stepz": []}, "replicas": 1}) == ["rollout.stepz"]


COMMANDS = sorted(
    {
        line.strip().partition("  #")[0].strip()
        for path in PAGES
        for line in path.read_text().splitlines()
        if re.match(r" *(\$ )?(kubectl )?promptgroup [a-z]+ ", line) and "`" not in line
    }
)


@pytest.mark.parametrize("command", COMMANDS)
def test_a_command_of_a_page_has_flags_that_there_are(command, monkeypatch, capsys):
    """Flags only: the command is asked for its help beside them, so nothing is read and nothing contacted."""
    words = command.partition("|")[0].removeprefix("$ ").removeprefix("kubectl ").split()
    given = [word.split("=")[0] for word in words[2:] if word.startswith("-") and word != "-"]
    monkeypatch.setattr("sys.argv", ["promptgroup", words[1], "--help"])
    with pytest.raises(SystemExit) as ended:
        main()
    assert ended.value.code == 0
    shown = capsys.readouterr().out
    assert [flag for flag in given if not re.search(rf"(?<![\w-]){re.escape(flag)}(?![\w-])", shown)] == []


@pytest.mark.heavy
def test_the_tutorials_plan_is_what_it_says(tmp_path):
    """The fifth step of the tutorial, without a cluster: a second Deployment beside the first, two pods at once."""
    first = ROOT / "manifests/samples/first.yaml"
    new = tmp_path / "new.yaml"
    new.write_text(first.read_text().replace("five", "three"))
    command = [sys.executable, "-m", "promptgroup_cli", "plan", str(new), "--from", str(first)]
    done = subprocess.run(command, capture_output=True, text=True, check=True, timeout=60)
    assert "at most 2 pods at a time" in done.stdout


# --- a newcomer's test -----------------------------------------------------------------------------------------------

NEWCOMER = ROOT / "docs/development/newcomer.md"
ROWS = re.findall(r"^\| (.+\?) \| (`README\.md` .+?) \| (.+?) \|$", NEWCOMER.read_text(), re.MULTILINE)


@pytest.mark.parametrize(("question", "way", "answer"), ROWS, ids=[row[0] for row in ROWS])
def test_a_newcomer_finds_the_answer_within_three_links(question, way, answer):
    stations = [ROOT / each.strip().strip("`") for each in way.split("→")]
    assert len(stations) <= 4
    for here, there in pairwise(stations):
        assert there.resolve() in {(here.parent / target).resolve() for target in links(here)}, f"{here} → {there}"
    assert answer.strip("`") in stations[-1].read_text()


def test_the_five_questions_are_asked():
    asked = " ".join(row[0] for row in ROWS).lower()
    for word in ("install", "reason", "engine", "slot", "report a hole"):
        assert word in asked
