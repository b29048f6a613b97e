"""Reads the PromptGroup of a file as `kubectl apply -f` accepts it, with its prompt.

No API server validates the file here, so this module makes its checks: the schema, the rules, unknown fields.
Messages name fields and short values, never text of a prompt.
"""

import base64
import binascii
import functools
import json
from collections.abc import Collection, Iterator, Mapping, Sequence
from dataclasses import dataclass
from datetime import datetime
from typing import Any, TypeVar

from pydantic import BaseModel, ValidationError

from promptgroup_cli.base import bounded_yaml, pod_schema
from promptgroup_cli.base.bounded_yaml import YamlError
from promptgroup_cli.rehearsal import cel_rules
from promptgroup_cli.rehearsal.simulated_guest import HOST_REPLICAS
from promptgroup_contract import names
from promptgroup_contract.fingerprint import Fingerprint
from promptgroup_operator.api import crd
from promptgroup_operator.api.prompt_group import PromptGroup, PromptGroupSpec, PromptSpec
from promptgroup_operator.base import timestamps
from promptgroup_operator.guests import host
from promptgroup_operator.plan import desired, merge, prompt, references
from promptgroup_operator.world.snapshot import GroupObject, Key, Problem, PromptText

API_VERSION = f"{names.API_GROUP}/{names.API_VERSION}"

SHOWN = 40
"""Longest value that a message repeats."""


_Model = TypeVar("_Model", bound=BaseModel)


class ManifestError(Exception):
    """The file cannot be used. The message names the fault, and the way out."""


class ManifestRefused(ManifestError):  # noqa: N818 - the API server or the operator would refuse it
    """The file has a PromptGroup that the API server or the operator would refuse."""


@dataclass(frozen=True, slots=True)
class Wanted:
    """The PromptGroup of a file."""

    group: GroupObject
    text: PromptText
    unknown: tuple[str, ...]
    """Fields that the API server would refuse and the plan ignores."""
    warnings: tuple[str, ...]
    """Nulls of the template, and objects that the group needs and the file does not have, since Secrets with keys are
    rarely stored beside it."""


@dataclass(frozen=True, slots=True)
class Declared:
    """The prompt of a PromptGroup; the rest of its spec may be invalid."""

    key: Key
    text: PromptText
    pin: Fingerprint | None
    """`spec.prompt.fingerprint`; the caller compares it with the prompt."""
    template: object = None
    """`spec.engine.template`, of any shape."""


def read_group(content: str, namespace: str, now: datetime, old: PromptGroupSpec | None = None) -> Wanted:
    """Return the only PromptGroup of a file.

    Args:
        content: YAML or JSON, of one or more documents.
        namespace: of objects that name none.
        now: when the group is created.
        old: the spec that is applied, when the file changes it.

    Raises:
        ManifestError: it cannot be planned.
    """
    objects = list(_objects(content))
    groups = _groups(objects)
    if len(groups) > 1:
        raise ManifestError(f"{len(groups)} PromptGroups in the file: plan one at a time, each from a file of its own")
    raw = groups[0]
    key = _key(raw, namespace)
    spec = _valid(PromptGroupSpec, raw.get("spec"), "spec")
    problems = list(cel_rules.broken_rules(key.name, spec, old))
    if problems:
        raise ManifestRefused("; ".join(problems))
    if spec.is_guest:
        spec = host.served(spec, None, HOST_REPLICAS, spec.model)
    group = GroupObject(key, f"uid-of-{key.name}", 1, timestamps.rfc3339(now), spec, {})
    values = _values(objects, references.references(spec), namespace, key.namespace)
    text = references.declared(spec, values)
    problem = text if isinstance(text, Problem) else desired.template_problem(group)
    if problem is not None:
        raise ManifestRefused(_described(problem))
    assert isinstance(text, PromptText)  # noqa: S101 - else it is the problem
    template = template_faults(spec.engine.template)
    if template:
        raise ManifestRefused("; ".join(template))
    warnings = (*template_nulls(spec.engine.template), *_not_in_file(spec, values))
    return Wanted(group, text, tuple(_unknown(raw)), warnings)


def template_faults(template: object) -> list[str]:
    """Return the faults for which an API server would refuse a spec.engine.template: types and names of fields."""
    if not isinstance(template, dict):
        return []
    try:
        faults = pod_schema.faults(merge.merge({}, template))
    except ValueError as error:
        return [f"spec.engine.template: {error}"]
    return [f"spec.engine.template.{item}" for item in faults]


def template_nulls(template: object) -> list[str]:
    """Return a warning for each null of a spec.engine.template, of any shape."""
    return [
        f"spec.engine.template.{null} is null: `kubectl apply` and Argo CD drop it before they send the file, so that "
        "the operator's own value stays, while `kubectl apply --server-side` and Flux send it: write a value, or use "
        "`$patch: delete` or `$patch: replace` in a map"
        for null in (merge.nulls(template) if isinstance(template, dict) else ())
    ]


def _not_in_file(spec: PromptGroupSpec, values: prompt.Values) -> Iterator[str]:
    """Yield a warning for each object that the group needs beside its prompt and the file does not have.

    Raises:
        ManifestRefused: the file has one that cannot be used.
    """
    for problem in references.problems(spec, values):
        if not problem.kind or (problem.kind, problem.name) in values:
            raise ManifestRefused(problem.problem.message)
        removesuffix = problem.problem.message.removesuffix(" does not exist")
        yield f"{removesuffix} is not in the file: the group waits until the cluster has it ({problem.problem.reason})"


def declared_prompts(content: str, namespace: str) -> list[Declared]:
    """Return the prompts of all PromptGroups of a file, whose specs may be invalid otherwise.

    Raises:
        ManifestError: one of them cannot be read, or there is none.
    """
    objects = list(_objects(content))
    return [_declared(raw, objects, namespace) for raw in _groups(objects)]


def _declared(raw: Mapping[str, Any], objects: Sequence[Mapping[str, Any]], namespace: str) -> Declared:
    key = _key(raw, namespace)
    spec = raw.get("spec")
    engine = spec.get("engine") if isinstance(spec, dict) else None
    template = engine.get("template") if isinstance(engine, dict) else None
    if isinstance(spec, dict) and isinstance(engine, dict) and "prompt" not in spec:
        return Declared(key, prompt.NOTHING, None, template)
    given = _valid(PromptSpec, spec.get("prompt") if isinstance(spec, dict) else None, "spec.prompt")
    unpinned = given.model_copy(update={"fingerprint": None})
    text = prompt.resolve(unpinned, _values(objects, prompt.references(given), namespace, key.namespace))
    if isinstance(text, Problem):
        raise ManifestError(f"PromptGroup {key.name}: {_described(text)}")
    return Declared(key, text, given.fingerprint, template)


# --- the file ----------------------------------------------------------------------------------------------


def _objects(content: str) -> Iterator[dict[str, Any]]:
    """Yield the objects of all documents and of the Lists in them."""
    try:
        documents = bounded_yaml.load_all(content)
    except YamlError as error:
        raise ManifestError(str(error)) from None
    for document in documents:
        if document is None:
            continue
        if not isinstance(document, dict) or not isinstance(document.get("kind"), str):
            raise ManifestError("a document is not a Kubernetes object: it has no kind")
        if document["kind"] == "List":
            yield from (item for item in document.get("items") or [] if isinstance(item, dict))
        else:
            yield document


def _groups(objects: Sequence[Mapping[str, Any]]) -> list[Mapping[str, Any]]:
    """Return the PromptGroups, at least one."""
    groups = [item for item in objects if item.get("kind") == "PromptGroup"]
    if not groups:
        if not objects:
            raise ManifestError("the file is empty: it needs a PromptGroup")
        kinds = ", ".join(sorted({str(item.get("kind")) for item in objects}))
        raise ManifestError(f"no PromptGroup in the file, but {kinds}: add one, with its kind and apiVersion")
    for raw in groups:
        if raw.get("apiVersion") != API_VERSION:
            raise ManifestError(f"apiVersion: {_value(raw.get('apiVersion'))} is unknown: write {API_VERSION}")
    return groups


def _key(raw: Mapping[str, Any], namespace: str) -> Key:
    metadata = raw.get("metadata")
    name = metadata.get("name") if isinstance(metadata, dict) else None
    if not isinstance(name, str) or not names.is_object_name(name):
        raise ManifestError(f"metadata.name: {_value(name)} is not a name: write lower-case letters, digits and '-'")
    return Key(_namespace(raw, namespace), name)


def _namespace(raw: Mapping[str, Any], default: str) -> str:
    metadata = raw.get("metadata")
    named = metadata.get("namespace") if isinstance(metadata, dict) else None
    return str(named or default)


# --- the spec ----------------------------------------------------------------------------------------------


def _valid(model: type[_Model], raw: object, path: str) -> _Model:
    """Parse a part of the spec as an API server does: as JSON, where numbers are not strings."""
    try:
        return model.model_validate_json(json.dumps(raw), strict=True)
    except ValidationError as error:
        problems = (
            f"{_path(path, item['loc'])}: {item['msg']}{_not(_path(path, item['loc']), item['input'])}"
            for item in error.errors(include_url=False)
        )
        raise ManifestRefused("; ".join(problems)) from None
    except (TypeError, ValueError, RecursionError):
        raise ManifestError(f"{path}: holds what JSON cannot, or is nested too deeply") from None


def _path(root: str, loc: Sequence[int | str]) -> str:
    return root + "".join(f"[{item}]" if isinstance(item, int) else f".{item}" for item in loc)


def _not(path: str, value: object) -> str:
    """Return the given value for a message; empty when it is long or a part of a prompt."""
    if isinstance(value, dict | list) or path.startswith("spec.prompt"):
        return ""
    shown = _value(value)
    return f", not {shown}" if len(shown) <= SHOWN else ""


def _value(value: object) -> str:
    return json.dumps(value, default=str)


def _unknown(raw: Mapping[str, Any]) -> Iterator[str]:
    for path in _name_collisions("spec", raw["spec"], _schema()):
        yield f"{path} is not a field of a PromptGroup: kubectl refuses it, and the plan ignores it"


@functools.cache
def _schema() -> Mapping[str, Any]:
    """Return the schema of a PromptGroup's spec, which takes longer to make than a plan."""
    spec: Mapping[str, Any] = crd.structural(PromptGroup)["properties"]["spec"]
    return spec


def _name_collisions(path: str, value: Any, schema: Mapping[str, Any]) -> Iterator[str]:
    """Yield the paths of fields that a structural schema does not have."""
    if isinstance(value, list) and "items" in schema:
        for index, item in enumerate(value):
            yield from _name_collisions(f"{path}[{index}]", item, schema["items"])
    elif isinstance(value, dict) and "properties" in schema:
        for name, child in value.items():
            if name in schema["properties"]:
                yield from _name_collisions(f"{path}.{name}", child, schema["properties"][name])
            else:
                yield f"{path}.{name}"


# --- the prompt --------------------------------------------------------------------------------------------


def _values(
    objects: Sequence[Mapping[str, Any]], wanted: Collection[tuple[str, str]], default: str, namespace: str
) -> prompt.Values:
    """Return the objects of the file that are wanted, in the group's namespace."""
    result: dict[tuple[str, str], Mapping[str, str]] = {}
    for item in objects:
        metadata = item.get("metadata")
        name = (item["kind"], str(metadata.get("name"))) if isinstance(metadata, dict) else None
        if name is not None and name in wanted and _namespace(item, default) == namespace:
            result[name] = _data(item)
    return result


def _data(raw: Mapping[str, Any]) -> dict[str, str]:
    """Return the data of a ConfigMap or Secret as text."""
    data = raw.get("data") or {}
    clear = raw.get("stringData") or {}
    if not isinstance(data, dict) or not isinstance(clear, dict):
        raise ManifestError(f"{raw['kind']} {raw['metadata']['name']}: data is not a map of keys to texts")
    if raw["kind"] == "ConfigMap":
        binary = raw.get("binaryData")
        unreadable = dict.fromkeys(map(str, binary), prompt.BINARY) if isinstance(binary, dict) else {}
        return prompt.Texts({str(key): str(value) for key, value in data.items()}, unreadable)
    texts = {}
    for key, value in data.items():
        try:
            texts[str(key)] = base64.b64decode(str(value), validate=True).decode()
        except (binascii.Error, ValueError):
            raise ManifestError(
                f"Secret {raw['metadata']['name']}: key {key} of data is not a text in base64: "
                "encode it, or write it as it is under stringData"
            ) from None
    return texts | {str(key): str(value) for key, value in clear.items()}


def _described(problem: Problem) -> str:
    missing = problem.reason in ("PromptNotFound", "ToolsNotFound", "MessagesNotFound")
    return problem.message + (": add it to the file, in a document of its own" if missing else "")
