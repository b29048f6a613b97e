"""Finds the fields of bodies that an engine's Python sources read, by name.

A body is a model of Pydantic, a class whose name ends with Request or ReqInput. Its fields are the annotated ones of
the class and of its bases, and those that a validator reads (`data.get(NAME)`, `data[NAME]`) before there is a model.
"""

import ast
from collections.abc import Iterator
from pathlib import Path

PLACES = {
    "vllm": tuple(
        f"entrypoints/{api}" for api in ("anthropic", "generate", "openai", "pooling", "serve", "speech_to_text")
    ),
    "sglang": ("srt/entrypoints/anthropic", "srt/entrypoints/openai"),
}
"""Package → the folders with the models of bodies that routers pass on."""
_UNSERVED = ("Batch", "Decision", "StructuredDecision", "ReadPrompt", "File", "LoadLoRA", "UnloadLoRA", "StartProfile")
"""Beginnings of the names of bodies at paths that routers do not serve."""
_READS = ("get", "pop", "setdefault")


def fields_of(package: Path) -> set[str]:
    """Return the fields of bodies that a package's servers read."""
    classes: dict[str, list[ast.ClassDef]] = {}
    for folder in PLACES[package.name]:
        for path in sorted((package / folder).rglob("*.py")):
            for node in ast.walk(ast.parse(path.read_text(errors="replace"))):
                if isinstance(node, ast.ClassDef):
                    classes.setdefault(node.name, []).append(node)
    pending = [name for name in classes if name.endswith(("Request", "ReqInput")) and not name.startswith(_UNSERVED)]
    fields: set[str] = set()
    while pending:
        for node in classes.pop(pending.pop(), []):
            fields.update(_fields(node))
            pending += [base.id for base in node.bases if isinstance(base, ast.Name)]
    return fields


def _fields(body: ast.ClassDef) -> Iterator[str]:
    for statement in body.body:
        match statement:
            case ast.AnnAssign(target=ast.Name(id=name), annotation=of) if "ClassVar" not in ast.unparse(of):
                if not name.startswith("_"):  # Pydantic takes no such name from a body
                    yield name
    for node in ast.walk(body):
        match node:
            case ast.Call(
                func=ast.Attribute(value=ast.Name(id="data"), attr=method), args=[ast.Constant(value=str(name)), *_]
            ) if method in _READS:
                yield name
            case ast.Subscript(value=ast.Name(id="data"), slice=ast.Constant(value=str(name)), ctx=ast.Load()):
                yield name
