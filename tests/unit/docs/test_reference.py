"""The reference pages are what the code says, and every name that users meet is on one."""

import re
from pathlib import Path

import pytest

from promptgroup_operator.plan import desired
from promptgroup_router.apis.endpoints import ENDPOINTS
from promptgroup_router.feed import table_file
from sitegen import crds, decisions, drawings, flags, identifiers, pages, reasons, recordings, series

DOCS = Path(__file__).parents[3] / "docs"
REFERENCE = "".join(path.read_text() for path in sorted((DOCS / "reference").glob("*.md")))


def test_every_generated_block_is_rendered_somewhere():
    used = {found["name"] for path in pages.pages() for found in pages.BLOCK.finditer(path.read_text())}
    assert used == set(pages.BLOCKS)


@pytest.mark.parametrize("path", pages.pages(), ids=lambda path: path.stem)
def test_a_generated_page_is_what_the_code_says(path):
    assert pages.rendered(path) == path.read_text(), "run `make generate-docs`"


@pytest.mark.parametrize("path", [*drawings.files(), *recordings.files()], ids=lambda path: path.name)
def test_a_generated_picture_is_what_the_code_draws(path):
    assert {**drawings.files(), **recordings.files()}[path] == path.read_text(), "run `make generate-docs`"


@pytest.mark.parametrize("path", sorted((DOCS / "assets").glob("*.svg")), ids=lambda path: path.name)
def test_a_picture_asks_nobody_for_anything(path):
    text = path.read_text().replace("http://www.w3.org/2000/svg", "").replace("http://www.w3.org/1999/xlink", "")
    text = re.sub(r"<!--.*?-->", "", text)  # where the form comes from
    assert "http" not in text
    assert "@font-face" not in text


def test_the_table_file_that_is_shown_is_one():
    page = (DOCS / "reference/promptroute.md").read_text()
    (example,) = re.findall(r"```json\n(.*?)```", page, re.DOTALL)
    (group,) = table_file.parse(example.encode(), "the example").groups
    assert [slot.address for slot in group.revisions[0].slots] == ["10.0.0.7:8000", "10.0.0.8:8000"]


# --- every name is on a page ---------------------------------------------------------------------------------------


@pytest.mark.parametrize("plural", ["promptgroups", "promptroutes"])
def test_every_field_is_on_a_page(plural):
    assert [each for each in crds.paths(plural, "spec") if f"`{each}`" not in REFERENCE] == []


def test_every_field_says_what_it_is():
    """A field without a description tells neither this page nor `kubectl explain` anything."""
    rows = [line for line in crds.fields("promptgroups", "spec").splitlines() if line.startswith("| `")]
    assert [row for row in rows if row.rstrip(" |").endswith(("string", "object"))] == []


@pytest.mark.parametrize(
    "parser",
    [flags.operator_parser(), flags.router_parser(), flags.picker_parser(), *flags.command_parsers().values()],
    ids=lambda parser: parser.prog.replace(" ", "-"),
)
def test_every_flag_is_on_a_page(parser):
    missing = [
        text for action in flags.options(parser) for text in action.option_strings if f"`{text}`" not in REFERENCE
    ]
    # of a setting the long form is enough
    assert [text for text in missing if text.startswith("--")] == []


@pytest.mark.heavy
def test_every_reason_is_explained_and_no_other():
    own = reasons.documented() - set(reasons.written()["conditions"])
    assert reasons.used() - own == set(), "write the reason into docs/sitegen/reasons.yaml, or list it as none"
    assert own - reasons.used() == set(), "no code uses this reason"


def test_every_condition_is_explained_and_no_other():
    """A type that is listed as no reason would be on the page neither as a reason nor as a condition."""
    assert reasons.condition_types() == set(reasons.written()["conditions"])
    assert set(reasons.written()["not reasons"]).isdisjoint(reasons.condition_types())


def test_a_condition_without_a_row_is_missed(monkeypatch):
    explained = dict(reasons.written()["conditions"])
    del explained["CacheTierUseful"]
    assert reasons.condition_types() - set(explained) == {"CacheTierUseful"}


@pytest.mark.heavy
def test_what_is_listed_as_no_reason_stands_in_the_code():
    listed = set(reasons.written()["not reasons"])
    assert listed - reasons.camel_texts() == set()
    assert listed & reasons.documented() == set()


def test_every_series_is_on_a_page():
    names = [row[0] for rows in (series.group_rows, series.operator_rows, series.router_rows) for row in rows()]
    assert names
    assert [name for name in names if f"`{name}`" not in REFERENCE] == []


def test_every_label_annotation_and_header_is_on_a_page():
    names = [*identifiers.domain_names(), *identifiers.PLAIN_HEADERS, *identifiers.LABELS]
    names += [
        value
        for constant, value, _ in identifiers.constants(identifiers.NAMES)
        if constant.startswith(("HEADER_", "LABEL_", "ANNOTATION_"))
    ]
    assert [name for name in names if f"`{name}`" not in REFERENCE] == []


def test_the_page_has_the_manager_that_objects_of_the_operator_carry():
    """Somebody who selects by the label finds what the operator made."""
    labels = desired.peers_secret("chat", b"key")["metadata"]["labels"]
    assert f"`{labels['app.kubernetes.io/managed-by']}`, on all objects" in REFERENCE


def test_every_decision_record_has_a_status_and_a_date():
    assert decisions.index().count("\n| [") == len(list(decisions.FOLDER.glob("[0-9]*.md")))


def test_every_error_code_of_the_router_is_on_a_page():
    texts = "".join(path.read_text() for path in (DOCS.parent / "router").rglob("*.py"))
    codes = set(re.findall(r'\bcode="([a-z_]+)"', texts))
    assert codes
    assert [each for each in sorted(codes) if f"`{each}`" not in REFERENCE] == []


def test_every_path_of_the_router_is_on_a_page():
    assert [path.decode() for path in ENDPOINTS if f"`POST {path.decode()}`" not in REFERENCE] == []


def test_every_setting_says_what_it_does():
    for parser in (flags.operator_parser(), flags.router_parser(), flags.picker_parser()):
        assert [action.dest for action in flags.options(parser) if not action.help] == []


@pytest.mark.parametrize("path", sorted(DOCS.rglob("*.md")), ids=lambda path: path.stem)
def test_series_that_a_page_names_exist(path):
    known = {row[0] for rows in (series.group_rows, series.operator_rows, series.router_rows) for row in rows()}
    known |= {f"{name}{suffix}" for name in known for suffix in ("_bucket", "_sum", "_count")}
    packages = {
        "promptgroup_operator",
        "promptgroup_router",
        "promptgroup_cli",
        "promptgroup_local",
        "promptgroup_research",
    }
    named = set(re.findall(r"(?<![\w/.-])promptgroup_[a-z_]*[a-z](?![\w/*-])", path.read_text()))
    assert sorted(named - known - packages) == []
