"""CustomResourceDefinitions → tables of their fields, rules and printer columns."""

import functools
import json
from collections.abc import Iterator
from pathlib import Path
from typing import Any

from promptgroup_cli.base import bounded_yaml
from sitegen.tables import table

CRDS = Path(__file__).parents[2] / "crds"

Schema = dict[str, Any]


@functools.cache
def _version(plural: str) -> Schema:
    (crd,) = bounded_yaml.load_all((CRDS / f"{plural}.yaml").read_text())
    version: Schema = crd["spec"]["versions"][0]
    return version


def _schema(plural: str) -> Schema:
    schema: Schema = _version(plural)["schema"]["openAPIV3Schema"]
    return schema


def paths(plural: str, top: str) -> list[str]:
    """Return the path of every field below `spec` or `status`, as in `spec.prompt.system`."""
    return [path for path, _, _ in _walk(_schema(plural)["properties"][top], top)]


def fields(plural: str, top: str) -> str:
    """Return the fields below `spec` or `status`: a table of those at the top, then a section for each object."""
    return page_of(_schema(plural)["properties"][top], top)


def page_of(root: Schema, top: str) -> str:
    """Return the same of a schema: it is the one of the field `top`."""
    rows = list(_walk(root, top))
    direct = [row for row in rows if row[0].count(".") == 1]
    parts = [_table(direct)]
    for path, node, _ in direct:
        below = [row for row in rows if row[0].startswith((f"{path}.", f"{path}[]."))]
        if below:
            parts.append(f"### `{path}`\n\n{node.get('description', '')}\n\n{_table(below)}")
    return "\n".join(parts)


def rules(plural: str) -> str:
    """Return the CEL rules that the API server checks, each with its message."""
    result = sorted({(path, rule["message"]) for path, rule in _rules(_schema(plural), "")})
    return table(["Object", "The API server refuses with"], [[f"`{path or '(top)'}`", text] for path, text in result])


def columns(plural: str) -> str:
    """Return the columns that `kubectl get` prints."""
    return table(
        ["Column", "Field", "Shown"],
        [
            [
                additional_printer_column["name"],
                f"`{additional_printer_column['jsonPath']}`",
                "with `-o wide`" if additional_printer_column.get("priority") else "always",
            ]
            for additional_printer_column in _version(plural)["additionalPrinterColumns"]
        ],
    )


def _table(rows: list[tuple[str, Schema, bool]]) -> str:
    return table(
        ["Field", "Type", "Default", "Description"],
        [
            [f"`{path}`" + (" (required)" if needed else ""), _type(node), _default(node), node.get("description", "")]
            for path, node, needed in rows
        ],
    )


def _walk(node: Schema, path: str) -> Iterator[tuple[str, Schema, bool]]:
    """Yield path, schema and whether it is required, of each field below a node."""
    for name, child in node.get("properties", {}).items():
        yield f"{path}.{name}", child, name in node.get("required", [])
        yield from _walk(child, f"{path}.{name}")
        if isinstance(child.get("items"), dict):
            yield from _walk(child["items"], f"{path}.{name}[]")


def _rules(node: Schema, path: str) -> Iterator[tuple[str, Schema]]:
    for rule in node.get("x-kubernetes-validations", []):
        yield path, rule
    for name, child in node.get("properties", {}).items():
        yield from _rules(child, f"{path}.{name}" if path else name)
        if isinstance(child.get("items"), dict):
            yield from _rules(child["items"], f"{path}.{name}[]")


def _type(node: Schema) -> str:
    if node.get("x-kubernetes-int-or-string"):
        return "integer or string"
    if "enum" in node:
        return "one of " + ", ".join(f"`{item}`" for item in node["enum"])
    if "(ms|s|m|h)" in node.get("pattern", ""):
        return "duration, as in `300ms`, `90s`, `1h30m`"
    if node.get("type") == "array":
        inner = node["items"].get("type", "object")
        return f"list of {inner}s" + _bounds(node, "minItems", "maxItems", " entries")
    kind: str = node.get("type", "object")
    if kind == "string":
        form = f", matches `{node['pattern']}`" if "pattern" in node else ""
        return kind + _bounds(node, "minLength", "maxLength", " characters") + form
    return kind + _bounds(node, "minimum", "maximum", "")


def _bounds(node: Schema, low: str, high: str, unit: str) -> str:
    if low in node and high in node:
        return f", {node[low]:,} to {node[high]:,}{unit}"
    if high in node:
        return f", at most {node[high]:,}{unit}"
    return f", at least {node[low]:,}{unit}" if low in node else ""


def _default(node: Schema) -> str:
    if "default" not in node or node.get("type") == "object" or node["default"] == []:
        return ""
    return f"`{json.dumps(node['default'])}`" if not isinstance(node["default"], str) else f"`{node['default']}`"
