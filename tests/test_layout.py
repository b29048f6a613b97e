"""The shape of the project: what a newcomer may rely on, kept by a test."""

import ast
import re
from collections import defaultdict
from dataclasses import fields
from pathlib import Path

import pytest

import promptgroup_operator.base.settings
import promptgroup_picker.settings
import promptgroup_router.base.settings

ROOT = Path(__file__).parents[1]
PACKAGES = {
    "contract": ROOT / "contract" / "promptgroup_contract",
    "control": ROOT / "operator" / "promptgroup_operator",
    "router": ROOT / "router" / "promptgroup_router",
    "picker": ROOT / "picker" / "promptgroup_picker",
    "cli": ROOT / "cli" / "promptgroup_cli",
}
"""Folder of the unit tests → package."""

LARGEST_FOLDER = 13
"""Modules in one folder, `__init__` aside: what a newcomer takes in at one look."""

UNTESTED_ALONE = {
    # sockets, threads, processes, the API server: integration tests drive them, whole
    "contract": {"__main__"},
    "control": {"__main__"},
    "router": {"__main__"},
    "picker": {"__main__"},
    "cli": {"__main__"},
}
"""Modules without a test file of their name."""

VALUES = {
    "semantic",
    "table",
    "decision/actions",
    "flights/answer_store",
    "api/starts",
    "world/effects",
    "world/pod_start",
    "world/sizing_history",
    "world/warming",
    "observe/cluster_state",
    "adoption/decision",
}
"""Modules that hold nothing but values and protocols; the tests of what decides by them are theirs."""


def modules(side):
    return {
        path.relative_to(PACKAGES[side]).with_suffix("").as_posix() for path in PACKAGES[side].rglob("[!_]*.py")
    } | {"__main__"}


def with_tests(side):
    """Modules with unit tests in a folder of the same name; a property test of a module's name does as well."""
    unit = ROOT / "tests" / "unit" / side
    properties = {path.stem.removeprefix("test_") for path in (ROOT / "tests" / "property").glob("test_*.py")}
    return {
        path.relative_to(unit).with_name(path.name.removeprefix("test_")).with_suffix("").as_posix()
        for path in unit.rglob("test_*.py")
    } | {each for each in modules(side) if each.rpartition("/")[2] in properties}


@pytest.mark.parametrize("side", PACKAGES)
def test_every_module_has_a_test_file_of_its_name(side):
    missing = modules(side) - UNTESTED_ALONE[side] - VALUES - with_tests(side)
    assert not missing, f"write tests/unit/{side}/FOLDER/test_NAME.py for {sorted(missing)}"


@pytest.mark.parametrize("side", PACKAGES)
def test_the_exceptions_are_modules_that_exist_and_have_none(side):
    assert UNTESTED_ALONE[side] <= modules(side) - with_tests(side)


@pytest.mark.parametrize("package", [*PACKAGES.values(), ROOT / "lab"], ids=lambda path: path.name)
def test_no_folder_is_larger_than_a_look(package):
    folders = {path.parent for path in package.rglob("*.py") if "tests" not in path.parts}
    sizes = {folder.relative_to(ROOT).as_posix(): len(list(folder.glob("[!_]*.py"))) for folder in folders}
    assert {name: size for name, size in sizes.items() if size > LARGEST_FOLDER} == {}


@pytest.mark.parametrize("package", PACKAGES.values(), ids=PACKAGES)
def test_every_folder_says_what_it_is_for(package):
    silent = [path for path in package.rglob("__init__.py") if not path.read_text().startswith('"""')]
    assert silent == []


RULE = re.compile(
    r"may not import|[Ii]mports nothing|[Ii]mports [\w`, ]+ only|no\s+I/O|without I/O|standard library only"
)
"""A sentence about what a folder may not import: modules by name, or those that do I/O."""


@pytest.mark.parametrize("package", PACKAGES.values(), ids=PACKAGES)
def test_every_folder_says_what_it_may_not_import(package):
    texts = {path.parent.name: ast.get_docstring(ast.parse(path.read_text())) for path in package.glob("*/__init__.py")}
    assert [name for name, text in texts.items() if not RULE.search(text or "")] == []


def test_nothing_shadows_the_standard_librarys_operator():
    folders = [
        path
        for path in ROOT.rglob("operator")
        if path.is_dir() and not any(part.startswith(".venv") for part in path.parts)
    ]
    assert [path.relative_to(ROOT).as_posix() for path in folders if "tests" in path.parts] == []
    assert [path for path in folders if (path / "__init__.py").exists()] == []


def test_test_folders_are_no_packages():
    assert list((ROOT / "tests").rglob("__init__.py")) == []


def helped(parse, capsys):
    with pytest.raises(SystemExit) as ended:
        parse(["--help"])
    assert ended.value.code == 0
    return capsys.readouterr().out


@pytest.mark.parametrize(
    ("settings", "kind"),
    [
        (promptgroup_operator.base.settings, "Settings"),
        (promptgroup_router.base.settings, "Settings"),
        (promptgroup_picker.settings, "PickerSettings"),
    ],
    ids=["control", "router", "picker"],
)
def test_every_setting_is_a_flag_that_help_names(settings, kind, capsys):
    shown = helped(settings.parse, capsys)
    named = {field.name for field in fields(getattr(settings, kind))} - {
        "source"
    }  # of the data path: --table, or the API server
    assert [name for name in sorted(named) if f"--{name.replace('_', '-')}" not in shown] == []


PUBLIC_CLASS = re.compile(r"^class ([A-Za-z]\w*)", re.MULTILINE)


def public_classes(package):
    for path in package.rglob("*.py"):
        for name in PUBLIC_CLASS.findall(path.read_text()):
            yield name, path.relative_to(ROOT).as_posix()


def test_no_public_class_name_means_two_things():
    places = defaultdict(list)
    for package in PACKAGES.values():
        for name, place in public_classes(package):
            places[name].append(place)
    twice = {name: found for name, found in places.items() if len(found) > 1}
    assert twice.keys() <= {"Settings"}, f"rename one of {twice}"


def shadowed(tree):
    """Yield line and name of what is assigned, or is a parameter, under the name of an import of the same module."""
    imported = {
        (alias.asname or alias.name).partition(".")[0]
        for node in tree.body
        if isinstance(node, ast.Import | ast.ImportFrom)
        for alias in node.names
    }
    for node in ast.walk(tree):
        if isinstance(node, ast.Name) and isinstance(node.ctx, ast.Store) and node.id in imported:
            yield node.lineno, node.id
        elif isinstance(node, ast.arg) and node.arg in imported:
            yield node.lineno, node.arg


@pytest.mark.heavy
@pytest.mark.parametrize("package", PACKAGES.values(), ids=PACKAGES)
def test_no_name_shadows_an_import(package):
    found = {
        f"{path.relative_to(ROOT)}:{line} {name}"
        for path in package.rglob("*.py")
        for line, name in shadowed(ast.parse(path.read_text()))
    }
    assert sorted(found) == []


@pytest.mark.parametrize("text", ["x = 1", "def f(x): ...", "[x for x in y]", "class A:\n    x: int"])
def test_a_name_that_shadows_an_import_is_found(text):
    assert [name for _, name in shadowed(ast.parse(f"from a import x\n{text}"))] == ["x"]
