"""Checks the CRD's CEL rules in Python, without an API server. Does no I/O.

The API server adds defaults before it evaluates rules, as the models do; `has(self.x)` is a field that is not None.
"""

from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from typing import Any

from pydantic import BaseModel

from promptgroup_operator.api.model import HOLDS, KEEPS
from promptgroup_operator.api.prompt_group import PromptGroup, PromptGroupSpec


@dataclass(frozen=True, slots=True)
class _Root:
    """The object itself; the models have no metadata."""

    name: str
    spec: PromptGroupSpec


def broken_rules(name: str, spec: PromptGroupSpec, old: PromptGroupSpec | None = None) -> Iterator[str]:
    """Yield the faults that the API server would refuse: the field and the rule's message.

    Args:
        name: of the PromptGroup.
        spec: the wanted one.
        old: the applied one; None when there is none.
    """
    for rule in rules_of(PromptGroup):
        if not HOLDS[rule["rule"]](_Root(name, spec)):
            yield _fault("", rule)
    yield from _broken("spec", spec)
    if old is not None:
        for rule in rules_of(PromptGroupSpec):
            if rule["rule"] in KEEPS and not KEEPS[rule["rule"]](spec, old):
                yield _fault("spec", rule)


def rules_of(model: type[BaseModel]) -> list[dict[str, str]]:
    """Return the CEL rules of a model."""
    extra = model.model_config.get("json_schema_extra")
    rules: Any = extra.get("x-kubernetes-validations", []) if isinstance(extra, dict) else []
    return list(rules)


def _broken(path: str, value: Any) -> Iterator[str]:
    """Yield the faults in a value and in its fields."""
    if isinstance(value, BaseModel):
        for rule in rules_of(type(value)):
            if rule["rule"] not in KEEPS and not HOLDS[rule["rule"]](value):
                yield _fault(path, rule)
        for name, field in type(value).model_fields.items():
            if name not in value.model_fields_set:
                continue  # a default keeps all rules, or means that an engine or a prompt is absent
            yield from _broken(f"{path}.{field.alias or name}", getattr(value, name))
    elif isinstance(value, list):
        for index, item in enumerate(value):
            yield from _broken(f"{path}[{index}]", item)


def _fault(path: str, rule: Mapping[str, str]) -> str:
    where, message = (path + rule.get("fieldPath", "")).lstrip("."), rule["message"]
    return message if message.startswith(where) else f"{where}: {message}"
