"""Finds the header fields that an engine's Python sources read, by name.

A read is `headers.get(NAME)`, `headers[NAME]`, `NAME in headers` or FastAPI's `Header(alias=NAME)` where the object is
called by the word "header"; names that constants hold are looked up in the whole package. Beside them every text that
looks like the name of a field of somebody's own (`x-…`) counts, wherever it stands in a file that speaks of headers,
since such names also come from tables and loops. A read whose name only a run would tell is told by its place.
"""

import ast
import re
from collections.abc import Iterator, Mapping
from pathlib import Path

_OWN = re.compile(r"x-[a-z][a-z0-9-]*[a-z0-9]", re.IGNORECASE)
_TOKEN = re.compile(r"[A-Za-z0-9!#$%&'*+.^_`|~-]+")
_TESTS = re.compile(r"(?:^|/)tests?(?:/|_)")
_READS = ("get", "getlist", "pop", "setdefault")
Constants = Mapping[str, tuple[str, ...]]
"""A constant's name → the texts that it holds."""


def reads_of(package: Path) -> tuple[set[str], set[str]]:
    """Return the names of the fields that a package reads, in lower case, and the reads whose names are not known.

    The latter are written `file: expression`, the file relative to the package.
    """
    trees = {
        path.relative_to(package).as_posix(): ast.parse(text)
        for path in sorted(package.rglob("*.py"))
        if not _TESTS.search(path.relative_to(package).as_posix())
        and "header" in (text := path.read_text(errors="replace")).lower()
    }
    constants = dict(pair for tree in trees.values() for pair in _constants(tree).items())
    names: set[str] = set()
    unknown: set[str] = set()
    for file, tree in trees.items():
        looped = dict(pair for node in ast.walk(tree) for pair in _looped(node, constants))
        for node in ast.walk(tree):
            for key in _keys(node):
                known = _texts(key, looped) or _texts(key, constants)
                names.update(name for name in known if _TOKEN.fullmatch(name))
                if not known:
                    unknown.add(f"{file}: {ast.unparse(node)}")
            names.update(text for text in _texts(node, {}) if _OWN.fullmatch(text))
    return {name.lower() for name in names}, unknown


def _constants(tree: ast.Module) -> dict[str, tuple[str, ...]]:
    known: dict[str, tuple[str, ...]] = {}
    for node in tree.body:
        if isinstance(node, ast.Assign) and (found := _texts(node.value, known)):
            for target in node.targets:
                if isinstance(target, ast.Name):
                    known[target.id] = found
    return known


def _looped(node: ast.AST, constants: Constants) -> Iterator[tuple[str, tuple[str, ...]]]:
    """Yield the variable of a loop over a constant, with what it may hold."""
    match node:
        case ast.For(target=target, iter=over) | ast.comprehension(target=target, iter=over) if found := _texts(
            over.func.value if _is_items(over) else over, constants
        ):
            name = target.elts[0] if isinstance(target, ast.Tuple) else target
            if isinstance(name, ast.Name):
                yield name.id, found


def _is_items(node: ast.expr) -> bool:
    return isinstance(node, ast.Call) and isinstance(node.func, ast.Attribute) and node.func.attr == "items"


def _texts(node: ast.AST, constants: Constants) -> tuple[str, ...]:
    """Return the texts that an expression holds."""
    match node:
        case ast.Constant(value=str(text)):
            return (text,)
        case ast.Constant(value=bytes(text)):
            return (text.decode("latin-1"),)
        case ast.Name(id=name) | ast.Attribute(attr=name):
            return constants.get(name, ())
        case ast.List(elts=parts) | ast.Tuple(elts=parts) | ast.Set(elts=parts):
            return tuple(text for part in parts for text in _texts(part, constants))
        case ast.BinOp(left=left, op=ast.Add(), right=right):
            return _texts(left, constants) + _texts(right, constants)
        case ast.Dict(keys=keys):
            return tuple(text for key in keys if key is not None for text in _texts(key, constants))
    return ()


def _keys(node: ast.AST) -> Iterator[ast.expr]:
    """Yield the names, as expressions, that a node reads from headers."""
    match node:
        case ast.Call(func=ast.Attribute(value=of, attr=method), args=[key, *_]) if method in _READS and _is_of(of):
            yield key
        case ast.Subscript(value=of, slice=key, ctx=ast.Load()) if _is_of(of) and not _is_place(key):
            yield key
        case ast.Compare(left=key, ops=[ast.In() | ast.NotIn()], comparators=[of]) if _is_of(of):
            yield key
        case ast.Call(func=ast.Name(id="Header") | ast.Attribute(attr="Header"), keywords=words):
            yield from [word.value for word in words if word.arg == "alias"] or [node]


def _is_of(node: ast.expr) -> bool:
    """Return True for an object that is called by the word: `request.headers`, `Headers(scope=scope)`."""
    match node:
        case ast.Name(id=name) | ast.Attribute(attr=name):
            return name.lower().endswith("headers")
        case ast.Call(func=called):
            return _is_of(called)
        case ast.Subscript(slice=ast.Constant(value="headers")):
            return True
    return False


def _is_place(key: ast.expr) -> bool:
    """Return True for an index into a list."""
    return isinstance(key, ast.Slice | ast.BinOp) or (isinstance(key, ast.Constant) and isinstance(key.value, int))
