"""The CRD's rules in CEL, read in Python: a file is checked where no API server is. Pure.

The API server adds defaults before it evaluates rules, as the models do; `has(self.x)` is a field that is not None.
"""

import re
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass
from datetime import timedelta
from typing import Any

from pydantic import BaseModel

from promptgroup_operator.api.prompt_group import MAX_NAME, PromptGroup, PromptGroupSpec
from promptgroup_operator.base import durations

_SURGE = re.compile(r"[1-9][0-9]{0,2}%", re.ASCII)


def _is_surge(value: int | str) -> bool:
    return value >= 1 if isinstance(value, int) else _SURGE.fullmatch(value) is not None


def _increase(weights: list[int]) -> bool:
    return weights == sorted(set(weights))


@dataclass(frozen=True, slots=True)
class _Root:
    """The object itself, whose metadata no model has."""

    name: str
    spec: PromptGroupSpec


HOLDS: Mapping[str, Callable[[Any], bool]] = {
    "has(self.configMapKeyRef) != has(self.secretKeyRef)": lambda source: (
        (source.config_map_key_ref is None) != (source.secret_key_ref is None)
    ),
    "has(self.system) != has(self.systemFrom)": lambda prompt: (prompt.system is None) != (prompt.system_from is None),
    "!(has(self.tools) && size(self.tools) > 0 && has(self.toolsFrom))": lambda prompt: (
        not (prompt.tools and prompt.tools_from is not None)
    ),
    "!has(self.system) || size(self.system) > 0": lambda prompt: prompt.system != "",
    "!has(self.ttft) || self.ttft.matches('[1-9]')": lambda targets: (
        targets.ttft is None or durations.parse(targets.ttft) > timedelta()
    ),
    "self.minReplicas <= self.maxReplicas": lambda sizing: sizing.min_replicas <= sizing.max_replicas,
    "self.steps.map(s, s.weight).isSorted() && "
    "self.steps.all(s, self.steps.exists_one(t, t.weight == s.weight))": lambda rollout: _increase(
        [step.weight for step in rollout.steps]
    ),
    "type(self.maxSurge) == int ? self.maxSurge >= 1 : self.maxSurge.matches('^[1-9][0-9]{0,2}%$')": lambda rollout: (
        _is_surge(rollout.max_surge)
    ),
    "!(has(self.replicas) && has(self.sizing))": lambda spec: spec.replicas is None or spec.sizing is None,
    f"size(self.metadata.name) <= {MAX_NAME}": lambda root: len(root.name) <= MAX_NAME,
    "self.spec.model != self.metadata.name": lambda root: root.spec.model != root.name,
}
"""Rule → whether an object keeps it."""

KEEPS: Mapping[str, Callable[[Any, Any], bool]] = {
    "self.model == oldSelf.model": lambda spec, old: spec.model == old.model,
}
"""Rule about a change of the spec → whether the change (new, old) keeps it."""


def broken(name: str, spec: PromptGroupSpec, old: PromptGroupSpec | None = None) -> Iterator[str]:
    """What the API server would refuse: where, and the rule's message.

    Args:
        name: of the PromptGroup.
        spec: as it is to be.
        old: as it stands; None when there is none.
    """
    for rule in of(PromptGroup):
        if not HOLDS[rule["rule"]](_Root(name, spec)):
            yield _said("", rule)
    yield from _broken("spec", spec)
    if old is not None:
        for rule in of(PromptGroupSpec):
            if rule["rule"] in KEEPS and not KEEPS[rule["rule"]](spec, old):
                yield _said("spec", rule)


def of(model: type[BaseModel]) -> list[dict[str, str]]:
    """The CEL rules of a model."""
    extra = model.model_config.get("json_schema_extra")
    rules: Any = extra.get("x-kubernetes-validations", []) if isinstance(extra, dict) else []
    return list(rules)


def _broken(path: str, value: Any) -> Iterator[str]:
    """In a value and all that it holds."""
    if isinstance(value, BaseModel):
        for rule in of(type(value)):
            if rule["rule"] not in KEEPS and not HOLDS[rule["rule"]](value):
                yield _said(path, rule)
        for name, field in type(value).model_fields.items():
            yield from _broken(f"{path}.{field.alias or name}", getattr(value, name))
    elif isinstance(value, list):
        for index, each in enumerate(value):
            yield from _broken(f"{path}[{index}]", each)


def _said(path: str, rule: Mapping[str, str]) -> str:
    where = (path + rule.get("fieldPath", "")).lstrip(".")
    return f"{where}: {rule['message']}" if where else rule["message"]
