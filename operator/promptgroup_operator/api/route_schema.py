"""Makes the schema of PromptRoutes from the contract, whose values describe their fields themselves."""

import ast
import enum
import functools
import inspect
import sys
from dataclasses import MISSING
from typing import Any

from promptgroup_contract.encoding import FORMAT, GUARDED_FORMAT
from promptgroup_contract.table import Group
from promptgroup_contract.wire import WireField, codec_of

Schema = dict[str, Any]

_FORMAT: Schema = {
    "type": "integer",
    "enum": [FORMAT, GUARDED_FORMAT],
    "description": "Version of the encoding. Routers refuse a route of a version that they do not know, and keep the "
    "one before.",
}


def prompt_route() -> Schema:
    """Return the schema of a PromptRoute."""
    spec = schema_of(Group)
    spec["properties"] = {"format": _FORMAT, **spec["properties"]}
    spec["required"] = ["format", *spec["required"]]
    return {
        "type": "object",
        "description": "The object by which the operator programs routers: revisions, weights and slots.",
        "properties": {"spec": spec | {"description": "A PromptGroup as routers see it; written by the operator."}},
        "required": ["spec"],
    }


def schema_of(cls: type) -> Schema:
    """Return the JSON schema of a class of the contract: of an enumeration, what it says of itself."""
    schema: Schema = {"description": _first_sentences(inspect.getdoc(cls))}
    if issubclass(cls, enum.Enum):
        return schema
    properties: Schema = {}
    required = []
    for described in codec_of(cls).fields:
        if described.inline_only:
            continue
        result = described.kind.schema(schema_of)
        if not described.key:
            properties |= result["properties"]
            continue
        text = _text(cls, described.name)
        properties[described.key] = (
            result | described.api | ({"description": text} if text else {}) | _default(described)
        )
        if described.required:
            required.append(described.key)
    schema |= {"type": "object", "properties": properties}
    return schema | ({"required": required} if required else {})


def _default(described: WireField) -> Schema:
    """Return the default that the API server fills in: of a field that the operator writes at all times."""
    value = described.absent if described.default is MISSING else described.default
    if described.required or not (described.always or described.default is MISSING) or value == "":
        return {}
    return {
        "default": list(value) if isinstance(value, tuple) else value.value if isinstance(value, enum.Enum) else value
    }


def _text(cls: type, field: str) -> str:
    """Return the docstring below a field, in the class or in the one that it inherits the field from."""
    result = (_texts(item.__module__).get((item.__name__, field)) for item in cls.__mro__ if item is not object)
    return next(filter(None, result), "")


@functools.cache
def _texts(module: str) -> dict[tuple[str, str], str]:
    """Return (class, field) → the docstring below the field, of each class of a module."""
    result = {}
    for node in ast.parse(inspect.getsource(sys.modules[module])).body:
        if isinstance(node, ast.ClassDef):
            for field, after in zip(node.body, node.body[1:], strict=False):
                if isinstance(field, ast.AnnAssign) and isinstance(after, ast.Expr):
                    result[node.name, ast.unparse(field.target)] = _first_sentences(ast.literal_eval(after.value))
    return result


def _first_sentences(text: str | None) -> str:
    return " ".join((text or "").split("\n\n")[0].split())
