"""Reads YAML that this project wrote, by libyaml where it is there: many times as fast as `safe_load`; writes it."""

from collections.abc import Iterator
from typing import Any

import yaml

LOADER: Any = getattr(yaml, "CSafeLoader", yaml.SafeLoader)


def document(text: str) -> Any:
    """Return the only document of a text."""
    return yaml.load(text, LOADER)


def documents(text: str) -> Iterator[Any]:
    """Yield the documents of a text."""
    yield from yaml.load_all(text, LOADER)


def written(**objects: object) -> dict[str, bytes]:
    """Return objects as files of the folder `promptgroups`: name → object."""
    return {f"promptgroups/{name}.yaml": yaml.safe_dump(item).encode() for name, item in objects.items()}
