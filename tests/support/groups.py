"""PromptGroups for tests: small prompts that are long enough to be cached, engines that start fast."""

from typing import Any

ENGINE_IMAGE = "ghcr.io/promptgroup/standin-engine:0.1.0"

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
    return {
        "apiVersion": "promptgroup.dev/v1alpha1",
        "kind": "PromptGroup",
        "metadata": {"name": name},
        "spec": {
            "model": "tiny",
            "prompt": {"system": prompt},
            "engine": {
                "image": ENGINE_IMAGE,
                "args": list(args),
                "resources": {"limits": {"nvidia.com/gpu": 1}},
                "template": {"spec": {"containers": [container], "terminationGracePeriodSeconds": 10}},
            },
            "replicas": replicas,
            **spec,
        },
    }
