"""The shape of the project: what a newcomer may rely on, kept by a test."""

from dataclasses import fields
from pathlib import Path

import pytest

import promptgroup_operator.settings
import promptgroup_router.settings

ROOT = Path(__file__).parents[1]
PACKAGES = {
    "control": ROOT / "operator" / "promptgroup_operator",
    "router": ROOT / "router" / "promptgroup_router",
}

UNTESTED_ALONE = {
    # sockets, threads, processes, the API server: integration tests drive them, whole
    "control": {"__main__", "handlers", "reconcile", "warmup"},
    "router": {"__main__", "names"},  # names: constants
}
"""Modules without a test file of their name."""


def modules(side):
    return {path.stem for path in PACKAGES[side].rglob("*.py")} - {"__init__"}


def with_tests(side):
    """Modules with unit tests; a property test of its name does as well."""
    folders = (ROOT / "tests" / "unit" / side, ROOT / "tests" / "property")
    return {path.stem.removeprefix("test_") for folder in folders for path in folder.glob("test_*.py")}


@pytest.mark.parametrize("side", PACKAGES)
def test_every_module_has_a_test_file_of_its_name(side):
    missing = modules(side) - UNTESTED_ALONE[side] - with_tests(side)
    assert not missing, f"write tests/unit/{side}/test_<name>.py for {sorted(missing)}"


@pytest.mark.parametrize("side", PACKAGES)
def test_the_exceptions_are_modules_that_exist_and_have_none(side):
    alone = {path.stem.removeprefix("test_") for path in (ROOT / "tests" / "unit" / side).glob("test_*.py")}
    assert UNTESTED_ALONE[side] <= modules(side) - alone


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
    "settings", [promptgroup_operator.settings, promptgroup_router.settings], ids=["control", "router"]
)
def test_every_setting_is_a_flag_that_help_names(settings, capsys):
    shown = helped(settings.parse, capsys)
    named = {field.name for field in fields(settings.Settings)} - {"source"}  # the router's: --table, or the API server
    assert [name for name in sorted(named) if f"--{name.replace('_', '-')}" not in shown] == []
