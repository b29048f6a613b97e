"""The objects that a group's spec refers to, and the check of their contents.

Messages contain names of objects and fields, never their contents.
"""

from collections.abc import Iterator
from dataclasses import replace
from ipaddress import ip_network
from typing import NamedTuple

from promptgroup_operator.adapters import identity
from promptgroup_operator.api.prompt_group import PromptGroupSpec
from promptgroup_operator.engines.engine_tls import tls_of
from promptgroup_operator.plan import prompt
from promptgroup_operator.plan.prompt import Values
from promptgroup_operator.world.snapshot import Problem, PromptText

PEM = "-----BEGIN CERTIFICATE-----"
"""The first line of a certificate in PEM (RFC 7468 section 5.1)."""


def references(spec: PromptGroupSpec) -> list[tuple[str, str]]:
    """Return (kind, name) of every object that the spec refers to; those of a guest's engine belong to its host."""
    secrets = _key_secrets(spec)
    if spec.engine.credential_from is not None and not spec.is_guest:
        secrets = [*secrets, spec.engine.credential_from.name]
    trusted = [tls_of(spec.engine.tls)] if spec.engine.tls is not None and not spec.is_guest else []
    authorities = ((engine_tls.kind, engine_tls.name) for engine_tls in trusted)
    return sorted({*prompt.references(spec.prompt), *(("Secret", name) for name in secrets), *authorities})


def resolve(spec: PromptGroupSpec, values: Values) -> PromptText | Problem:
    """Return the prompt, or the reason why the group cannot be served as specified.

    Args:
        spec: the group's spec.
        values: the objects that `references(spec)` names.
    """
    text = declared(spec, values)
    return text if isinstance(text, Problem) else next((problem.problem for problem in problems(spec, values)), text)


def declared(spec: PromptGroupSpec, values: Values) -> PromptText | Problem:
    """Return the prompt that a spec declares, with its adapter, or the reason why there is none yet."""
    text = prompt.resolve(spec.prompt, values) if spec.has_prompt else prompt.NOTHING
    if spec.adapter is None or isinstance(text, Problem):
        return text
    whole = replace(text.prompt, adapter=identity.encode(identity.of_spec(spec.adapter)))
    return replace(text, prompt=whole, fingerprint=whole.fingerprint)


class ReferenceProblem(NamedTuple):
    """The problem of an object or value in the spec, beside the prompt, that cannot be used."""

    kind: str
    """Kind of the object; empty for a value of the spec itself."""
    name: str
    problem: Problem


def problems(spec: PromptGroupSpec, values: Values) -> Iterator[ReferenceProblem]:
    """Yield the problems that prevent the group from being served, beside those of its prompt."""
    for check in (_credential_problem, _tls_problem) if not spec.is_guest else ():
        if (reference_problem := check(spec, values)) is not None:
            yield reference_problem
    yield from _access_problems(spec, values)


def _key_secrets(spec: PromptGroupSpec) -> list[str]:
    access = spec.access
    return access.api_key.secrets if access is not None and access.api_key is not None else []


def _credential_problem(spec: PromptGroupSpec, values: Values) -> ReferenceProblem | None:
    source = spec.engine.credential_from
    data = values.get(("Secret", source.name)) if source is not None else None
    if source is None or (data is not None and data.get(source.key, "").strip()):
        return None
    why = prompt.lacking(data, source.key)
    message = f"key {source.key} of Secret {source.name} (spec.engine.credentialFrom) {why}"
    return ReferenceProblem("Secret", source.name, Problem("CredentialNotFound", message))


def _tls_problem(spec: PromptGroupSpec, values: Values) -> ReferenceProblem | None:
    if spec.engine.tls is None:
        return None
    tls = tls_of(spec.engine.tls)
    data = values.get((tls.kind, tls.name))
    bundle = data.get(tls.key) if data is not None else None
    if bundle is not None and PEM in bundle:
        return None
    lacking = prompt.lacking(data, tls.key) if bundle is None else "holds no certificate in PEM"
    message = f"key {tls.key} of {tls.kind} {tls.name} (spec.engine.tls.caFrom) {lacking}"
    return ReferenceProblem(tls.kind, tls.name, Problem("AuthorityNotFound", message))


def _access_problems(spec: PromptGroupSpec, values: Values) -> Iterator[ReferenceProblem]:
    for name in _key_secrets(spec):
        data = values.get(("Secret", name))
        if not data or not any(value.strip() for value in data.values()):
            subject = "does not exist" if data is None else "holds no API key"
            message = f"Secret {name} (spec.access.apiKey.secrets) {subject}"
            yield ReferenceProblem("Secret", name, Problem("KeysNotFound", message))
    header = spec.access.header if spec.access is not None else None
    for source in header.sources if header is not None else ():
        try:
            ip_network(source)
        except ValueError as error:
            yield ReferenceProblem("", "", Problem("InvalidAccess", f"spec.access.header.sources: {error}"))
