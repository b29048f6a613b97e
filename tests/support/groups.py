"""PromptGroups for tests: small prompts that are long enough to be cached, engines that start fast."""

from typing import Any

from promptgroup_contract import names
from promptgroup_local import lab

PROMPTS = {
    letter: f"You are assistant {letter}. "
    + " ".join(f"Rule {letter}{number}: answer question number {number} briefly and politely." for number in range(60))
    for letter in "abcdefgh"
}
"""System prompts of about 4,000 characters that differ from the first words on."""


def group(
    name: str,
    prompt: str = PROMPTS["a"],
    *,
    replicas: int = 2,
    args: tuple[str, ...] = (),
    env: dict[str, str] | None = None,
    **spec: Any,
) -> dict[str, Any]:
    """A PromptGroup on stand-in engines. `spec` overrides whole blocks."""
    container = {"name": "engine", "env": [{"name": key, "value": value} for key, value in (env or {}).items()]}
    made = lab.group(name, "tiny", prompt, replicas=replicas)
    made["spec"]["engine"] |= {
        "args": list(args),
        "template": {"spec": {"containers": [container], "terminationGracePeriodSeconds": 10}},
    }
    made["spec"] |= spec
    return made


def guest(name: str, prompt: str, host: str = "pool", **spec: Any) -> dict[str, Any]:
    """A PromptGroup on the replicas of the host."""
    return {
        "apiVersion": f"{names.API_GROUP}/{names.API_VERSION}",
        "kind": "PromptGroup",
        "metadata": {"name": name},
        "spec": {"engineFrom": {"promptGroup": host}, "prompt": {"system": prompt}, **spec},
    }
