"""An image has what its program imports when it starts: its group of dependencies names each library."""

import ast
import tomllib
from collections.abc import Iterator
from importlib.metadata import packages_distributions
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[3]
FOLDERS = {
    "promptgroup_contract": ROOT / "contract",
    "promptgroup_router": ROOT / "router",
    "promptgroup_picker": ROOT / "picker",
    "promptgroup_local": ROOT / "lab",
}
DISTRIBUTIONS = packages_distributions()


def group(name: str) -> set[str]:
    """Names of the libraries of a group, those of the groups that it includes too."""
    groups = tomllib.loads((ROOT / "pyproject.toml").read_text())["dependency-groups"]
    found = set()
    for entry in groups[name]:
        if isinstance(entry, dict):
            found |= group(entry["include-group"])
        else:
            found.add(entry.partition(";")[0].partition("[")[0].partition(">")[0].strip().lower())
    return found


def path_of(module: str) -> Path | None:
    """File of a module of the project; None for another's."""
    folder = FOLDERS.get(module.partition(".")[0])
    if folder is None:
        return None
    path = folder / module.replace(".", "/")
    return next((file for file in (path / "__init__.py", path.with_suffix(".py")) if file.is_file()), None)


def imported(path: Path) -> Iterator[str]:
    """Modules that a module imports when it is imported, whichever branch it takes."""
    waiting = list(ast.parse(path.read_text()).body)
    while waiting:
        node = waiting.pop()
        if isinstance(node, ast.Import):
            yield from (alias.name for alias in node.names)
        elif isinstance(node, ast.ImportFrom) and node.module is not None:
            yield node.module
            yield from (f"{node.module}.{alias.name}" for alias in node.names)
        elif isinstance(node, ast.Try):
            waiting += [*node.body, *(line for handler in node.handlers for line in handler.body)]
        elif isinstance(node, ast.If) and "TYPE_CHECKING" not in ast.unparse(node.test):
            waiting += [*node.body, *node.orelse]


@pytest.mark.parametrize(
    ("name", "module"),
    [
        ("router", "promptgroup_router.server"),
        ("router", "promptgroup_router.reading.program"),
        ("picker", "promptgroup_picker.server"),
        ("engine", "promptgroup_local.engine.__main__"),
    ],
)
def test_the_image_has_what_its_program_imports(name, module):
    waiting, seen, missing, found = [module], set(), set(), 0
    while waiting:
        name_of_module = waiting.pop()
        if name_of_module in seen:
            continue
        seen.add(name_of_module)
        path = path_of(name_of_module)
        if path is not None:
            waiting += imported(path)
            continue
        libraries = {
            library.lower().replace("_", "-") for library in DISTRIBUTIONS.get(name_of_module.partition(".")[0], ())
        }
        if libraries and "promptgroup" not in libraries:
            found += 1
            missing |= set() if libraries & group(name) else {name_of_module}
    assert found > 2
    assert missing == set()
