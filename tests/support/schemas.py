"""Checks values against the JSON schemas of CRDs, as far as the schemas of this project go."""

import re
from collections.abc import Iterator, Mapping
from typing import Any

TYPES = {"string": str, "integer": int, "number": int | float, "boolean": bool, "array": list, "object": dict}


def misfits(schema: Mapping[str, Any], value: Any) -> list[str]:
    """Return what an API server would refuse of a value, and the fields that it would drop."""
    return list(_misfits(schema, value, ""))


def _misfits(schema: Mapping[str, Any], value: Any, at: str) -> Iterator[str]:
    if not isinstance(value, TYPES[schema["type"]]) or (isinstance(value, bool) and schema["type"] != "boolean"):
        yield f"{at} is no {schema['type']}"
        return
    if value not in schema.get("enum", [value]) or not re.search(schema.get("pattern", ""), str(value)):
        yield f"{at} is {value}"
    if isinstance(value, int | float) and not schema.get("minimum", value) <= value <= schema.get("maximum", value):
        yield f"{at} is {value}"
    if isinstance(value, list | str) and len(value) > schema.get(
        "maxItems" if isinstance(value, list) else "maxLength", 1 << 20
    ):
        yield f"{at} is too long"
    for index, item in enumerate(value if isinstance(value, list) else ()):
        yield from _misfits(schema["items"], item, f"{at}[{index}]")
    if isinstance(value, dict):
        yield from (f"{at}.{key} is missing" for key in schema.get("required", ()) if key not in value)
        yield from (f"{at}.{key} is unknown" for key in value if key not in schema["properties"])
        for key in value.keys() & schema["properties"].keys():
            yield from _misfits(schema["properties"][key], value[key], f"{at}.{key}")
