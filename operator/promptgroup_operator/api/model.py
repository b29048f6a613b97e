"""The base of all models of the API, and validation rules with twins in Python."""

from collections.abc import Callable
from typing import Annotated, Any

from pydantic import BaseModel, ConfigDict, Field
from pydantic.alias_generators import to_camel
from pydantic.config import JsonDict

from promptgroup_contract import names
from promptgroup_operator.base import durations

HOLDS: dict[str, Callable[[Any], bool]] = {}
"""CEL rule → its twin: True if a model keeps it. A rule of the whole object gets a value with `name` and `spec`."""
KEEPS: dict[str, Callable[[Any, Any], bool]] = {}
"""CEL rule about a change → its twin: True if the change, given as (new, old), keeps it."""


def rule(cel: str, message: str, field: str = "", *, holds: Callable[[Any], bool]) -> JsonDict:
    """Return a validation rule. `holds` says the same of a model with defaults: `has(self.x)` is `x is not None`."""
    HOLDS[cel] = holds
    made: JsonDict = {"rule": cel, "message": message}
    return made | ({"fieldPath": field} if field else {})


def rule_of_change(cel: str, message: str, field: str, *, keeps: Callable[[Any, Any], bool]) -> JsonDict:
    """Return a transition rule, which uses `oldSelf`."""
    KEEPS[cel] = keeps
    return {"rule": cel, "message": message, "fieldPath": field}


class ApiModel(BaseModel):
    """A part of the API: frozen, with the names of its fields in camel case, and docstrings as descriptions."""

    model_config = ConfigDict(
        alias_generator=to_camel,
        populate_by_name=True,
        frozen=True,
        extra="ignore",
        use_attribute_docstrings=True,
    )


Duration = Annotated[str, Field(pattern=durations.PATTERN, max_length=32)]
"""A span of time; its description in the CRD says how one is written."""


ObjectName = Annotated[str, Field(pattern=names.OBJECT_NAME, max_length=names.LONGEST_NAME)]
"""Name of an object that the field refers to: one that an object can have, since it becomes a part of paths."""


class KeyRef(ApiModel):
    """A key of a ConfigMap or Secret in the group's namespace."""

    name: ObjectName
    """Name of the object."""
    key: Annotated[str, Field(pattern="^[-._a-zA-Z0-9]+$", max_length=253)]
    """Key whose value is the text."""


Printed = Annotated[str, Field(min_length=1, max_length=253, pattern="^[!-~]+$")]
"""A name that status, tables and logs show: printable ASCII without blanks, so that a terminal obeys none of it."""


def rules(*rules: JsonDict) -> ConfigDict:
    """Return the configuration of a model with these validation rules."""
    return ConfigDict(json_schema_extra={"x-kubernetes-validations": [*rules]})
