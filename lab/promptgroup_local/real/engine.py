"""Real engines on CPU as replicas of a local cluster.

A folder holds a virtual environment with the engine (`venv/`) and a model (`tiny/`: config and tokenizer are enough,
the weights are random). Answers are noise; prefix caching, cached tokens, salts and metrics are the engine's own.
"""

import argparse
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from promptgroup_local import lab
from promptgroup_local.cluster.images import Images, repository
from promptgroup_local.load.prompts import system_prompt
from promptgroup_operator.api.prompt_group import EngineType
from promptgroup_operator.engines.dialects.dialect import Dialect, arguments
from promptgroup_operator.engines.dialects.pod_parts import ADDRESS
from promptgroup_operator.engines.dialects.registry import DIALECTS

MODEL = "tiny"
TASK = "code"
REPLICAS = 2
START_SECONDS = 1200.0
"""Longest start of two engines that share cores with others: one to two minutes each on a free machine."""


@dataclass(frozen=True, slots=True)
class RealEngine:
    """The way in which one engine runs on a CPU."""

    type: EngineType
    image: str
    """The image that a group names; on a local cluster it is a program."""
    program: str
    """Shell command, run in the folder with the container's arguments as "$@"; `{pod_ip}` is the pod's address."""
    parts: tuple[str, ...]
    """The files that the folder must have."""
    args: tuple[str, ...]
    """The settings that the engine needs on a CPU."""
    small: tuple[str, ...]
    """Arguments for a KV cache of 8,192 tokens."""
    environment: Mapping[str, str]
    reset: str
    """Path that empties its cache."""

    @property
    def name(self) -> str:
        """Its name, as people write it."""
        return self.type.value

    @property
    def dialect(self) -> Dialect:
        """Its words."""
        return DIALECTS[self.type]

    def images(self, folder: Path) -> Images:
        """Return the engine's image on this machine."""
        return {repository(self.image): ["bash", "-c", f'cd "{folder}" && {self.program}', self.name]}

    def served(self, folder: Path, model: str, port: int) -> tuple[list[str], dict[str, str]]:
        """Return command and environment of one engine on this machine's loopback, started as in a pod."""
        address = "127.0.0.1"
        given = arguments(self.dialect, f"./{MODEL}", port, (f"--served-model-name={model}", *self.args))
        (program,) = self.images(folder).values()
        command = [word.replace("{pod_ip}", address) for word in program]
        return [*command, *(word.replace(ADDRESS, address) for word in given)], {**self.dialect.env, **self.environment}

    def group(
        self, name: str, args: Sequence[str] = (), environment: Mapping[str, str] | None = None, **spec: Any
    ) -> dict[str, Any]:
        """Return a PromptGroup of these engines for the prompt of one task."""
        variables = {**self.environment, **(environment or {})}
        container = {"name": "engine", "env": [{"name": key, "value": value} for key, value in variables.items()]}
        result = lab.group(name, MODEL, system_prompt(TASK, 1), image=self.image, **spec)
        result["spec"]["engine"] |= {
            "type": self.type.value,
            "args": [*self.args, *args],
            "template": {"spec": {"containers": [container]}},
        }
        return result


def chosen(
    engines: Sequence[RealEngine], program: str, description: str | None, argv: Sequence[str] | None = None
) -> tuple[RealEngine, Path]:
    """Return the engine that the command line names, and its folder; ends the program where that lacks something."""
    parser = argparse.ArgumentParser(prog=program, description=description)
    one = parser.add_mutually_exclusive_group(required=True)
    for engine in engines:
        text = f"folder with {', '.join(engine.parts)}"
        one.add_argument(f"--{engine.name.lower()}", type=Path, metavar="DIR", help=text)
    given = vars(parser.parse_args(argv))
    engine = next(item for item in engines if given[item.name.lower()] is not None)
    named: Path = given[engine.name.lower()]
    folder = named.expanduser().resolve()
    for part in engine.parts:
        if str(named) in ("", ".") or not (folder / part).exists():
            parser.error(f"--{engine.name.lower()} {folder}: there is no {part}")
    return engine, folder
