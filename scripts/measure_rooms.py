"""Measures how far a feature of the router is a room of its own, and how large the largest things are.

    python scripts/measure_rooms.py            # the table
    python scripts/measure_rooms.py --names    # also each name that the core imports from a feature

`tests/unit/repository/test_rooms.py` holds the figures: they may fall, and not grow.
"""

import argparse
import ast
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

ROOT = Path(__file__).resolve().parent.parent
PACKAGES = {
    "promptgroup_contract": ROOT / "contract" / "promptgroup_contract",
    "promptgroup_router": ROOT / "router" / "promptgroup_router",
    "promptgroup_picker": ROOT / "picker" / "promptgroup_picker",
    "promptgroup_operator": ROOT / "operator" / "promptgroup_operator",
    "promptgroup_cli": ROOT / "cli" / "promptgroup_cli",
}
_ROUTER = "promptgroup_router."
FEATURES = tuple(
    _ROUTER + name
    for name in ("access", "callers", "features", "flights", "reading", "response_cache", "semantic", "undeclared")
)
"""The features of the router, by package. Values that requests of all groups have (a caller, a part of the cache, the
trace in a header) belong to the core, and are in packages that are not listed."""
CORE = (*(_ROUTER + name for name in ("routing", "decision", "proxy", "placement", "policy", "rings", "prefixes",
                                      "http11")), "promptgroup_picker.extproc")  # fmt: skip
"""The packages that every request passes."""
WIRING = (_ROUTER + "decision.arrival", _ROUTER + "decision.composition")
"""The modules that may name features: `arrival` adds those of one request, `composition` makes what requests share of
them, and the points of each group."""


@dataclass(frozen=True, slots=True)
class Module:
    """A module and its syntax tree."""

    name: str
    tree: ast.Module


def modules() -> Iterator[Module]:
    """Yield all modules that are shipped."""
    for package, folder in PACKAGES.items():
        for path in sorted(folder.rglob("*.py")):
            parts = path.relative_to(folder).with_suffix("").parts
            yield Module(".".join((package, *parts)), ast.parse(path.read_text()))


def is_in(name: str, packages: tuple[str, ...]) -> bool:
    """Return True if a module is one of the packages, or within one."""
    return any(name == package or name.startswith(package + ".") for package in packages)


def feature_names() -> list[tuple[str, str]]:
    """Return module and name of all that modules of the core import from features, wiring aside."""
    imported = []
    for module in modules():
        if not is_in(module.name, CORE) or is_in(module.name, (*FEATURES, *WIRING)):
            continue
        for node in ast.walk(module.tree):
            if isinstance(node, ast.ImportFrom) and node.module and is_in(node.module, FEATURES):
                imported += [(module.name, f"{node.module}.{alias.name}") for alias in node.names]
    return imported


def classes() -> list[tuple[int, str]]:
    """Return number of methods and name of all classes, the largest first."""
    counted = []
    for module in modules():
        for node in ast.walk(module.tree):
            if isinstance(node, ast.ClassDef):
                methods = sum(isinstance(member, ast.FunctionDef | ast.AsyncFunctionDef) for member in node.body)
                counted.append((methods, f"{module.name}.{node.name}"))
    return sorted(counted, reverse=True)


def members(module_name: str, class_name: str) -> int:
    """Return the number of fields of a dataclass, or of slots of a class."""
    for module in modules():
        if module.name != module_name:
            continue
        for node in ast.walk(module.tree):
            if isinstance(node, ast.ClassDef) and node.name == class_name:
                slots = [
                    len(member.value.elts)
                    for member in node.body
                    if isinstance(member, ast.Assign)
                    and isinstance(member.value, ast.Tuple)
                    and any(isinstance(target, ast.Name) and target.id == "__slots__" for target in member.targets)
                ]
                return slots[0] if slots else sum(isinstance(member, ast.AnnAssign) for member in node.body)
    raise LookupError(f"{module_name} has no class {class_name}")


def measured() -> dict[str, int]:
    """Return measure → value."""
    return {
        "names that the core imports from features": len(feature_names()),
        "fields of Route": members(_ROUTER + "routing.route", "Route"),
        "slots of Relay": members(_ROUTER + "proxy.relay", "Relay"),
        "slots of Processing": members("promptgroup_picker.extproc.processing", "Processing"),
        "most methods of a class": classes()[0][0],
        "classes with more than 25 methods": sum(methods > 25 for methods, _ in classes()),
    }


def main() -> None:
    """Print the table."""
    parser = argparse.ArgumentParser(description=(__doc__ or "").partition("\n")[0])
    parser.add_argument("--names", action="store_true", help="also print each name that the core imports")
    if parser.parse_args().names:
        for module, name in feature_names():
            print(f"{module:56} {name}")
        print()
    for measure, value in measured().items():
        print(f"{value:6}  {measure}")
    for methods, name in classes()[:8]:
        print(f"{methods:6}  methods of {name}")


if __name__ == "__main__":
    main()
