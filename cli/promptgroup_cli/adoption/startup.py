"""Reads how a container starts its engine: which one, with which model, on which port, with which arguments.

vLLM and SGLang are started by their own command, by Python, by a shell that does nothing else, or by the entrypoint of
their image, in which case the container has only the arguments.
"""

import re
import shlex
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from itertools import pairwise
from typing import Any

from promptgroup_cli.adoption.decision import AdoptionError
from promptgroup_operator.api.prompt_group import EngineType
from promptgroup_operator.engines.dialects.flags import flag_of

MOST_SCRIPT = 1 << 16
"""Characters of a shell's command that are read."""
SHELLS = frozenset({"sh", "bash", "ash", "dash"})
_BEYOND = re.compile(r"[|&;<>`\n]|\$\(|\bif\b|\bwhile\b")
"""Signs of a shell command that does more than start one program."""
_VARIABLE = re.compile(r"\$\{?[A-Za-z_]")
_NUMBER = re.compile(r"-[0-9.]+")
_BY_COMMAND = {
    ("vllm", "serve"): EngineType.VLLM,
    ("-m", "vllm.entrypoints.openai.api_server"): EngineType.VLLM,
    ("-m", "vllm.entrypoints.cli.main", "serve"): EngineType.VLLM,
    ("-m", "sglang.launch_server"): EngineType.SGLANG,
    ("sglang", "serve"): EngineType.SGLANG,
}
"""Words of a command line that start an engine, behind which its arguments begin."""
_SERVES = re.compile(r"(^|/)vllm-openai($|[:@])")
"""Matches images whose entrypoint is `vllm serve`."""
_BY_IMAGE = (("vllm", EngineType.VLLM), ("sglang", EngineType.SGLANG))
DEFAULT_PORTS = {EngineType.VLLM: 8000, EngineType.SGLANG: 30000}
MODEL_FLAGS = {EngineType.VLLM: ("--model",), EngineType.SGLANG: ("--model-path", "--model")}


@dataclass(frozen=True, slots=True)
class EngineFlag:
    """A flag with the words that belong to it."""

    name: str
    """As the engine spells it, with dashes."""
    values: tuple[str, ...]
    words: tuple[str, ...]
    """As the container has them."""

    @property
    def value(self) -> str:
        """Its only or its first value; empty for a switch."""
        return self.values[0] if self.values else ""

    def __str__(self) -> str:
        """Return it as one line."""
        return " ".join(self.words)


@dataclass(frozen=True, slots=True)
class Startup:
    """The start of an engine."""

    engine: EngineType
    weights: str
    """The model's name or path."""
    names: tuple[str, ...]
    """Names of the model for clients."""
    port: int
    flags: tuple[EngineFlag, ...]
    """All flags, those of model and port included."""
    command: tuple[str, ...] = ()
    """Words that start it, where the container or its shell names them; empty where the image does."""


def read(container: Mapping[str, Any]) -> Startup:
    """Return the engine that a container starts, with its model, port and arguments.

    Raises:
        AdoptionError: it starts something else, or more than that.
    """
    image = str(container.get("image") or "")
    command, engine, rest = _engine(_words(container), image, entrypoint=not container.get("command"))
    positional, flags = parse(rest)
    weights = last(flags, *MODEL_FLAGS[engine]) or (positional[0] if positional else "")
    if not weights:
        raise AdoptionError("the command line of the engine names no model: it may be in a variable or a file")
    served = next((flag.values for flag in reversed(flags) if flag.name == "--served-model-name"), ())
    port = last(flags, "--port")
    return Startup(
        engine=engine,
        weights=weights,
        names=served or (weights,),
        port=int(port) if re.fullmatch("[1-9][0-9]{0,4}", port) else DEFAULT_PORTS[engine],
        flags=flags,
        command=command,
    )


def parse(words: Sequence[str]) -> tuple[list[str], tuple[EngineFlag, ...]]:
    """Return the words before the first flag, and the flags with the words behind them."""
    positional: list[str] = []
    flags: list[list[str]] = []
    for word in words:
        if word.startswith("-") and not _NUMBER.fullmatch(word):
            flags.append([word])
        elif flags:
            flags[-1].append(word)
        else:
            positional.append(word)
    return positional, tuple(_flag(group) for group in flags)


def _flag(words: Sequence[str]) -> EngineFlag:
    _, equals, value = words[0].partition("=")
    return EngineFlag(flag_of(words[0]), ((value,) if equals else ()) + tuple(words[1:]), tuple(words))


def last(flags: Sequence[EngineFlag], *names: str) -> str:
    """Return the value of a flag, as engines read it: the last one wins; empty if it is not given."""
    return next((flag.value for flag in reversed(flags) if flag.name in names), "")


def _words(container: Mapping[str, Any]) -> list[str]:
    """Return the command line, of a shell the one that it runs."""
    command, args = _list(container.get("command")), _list(container.get("args"))
    words = [*command, *args]
    shell = bool(command) and command[0].rpartition("/")[2] in SHELLS
    if not shell:
        return words
    script = next((word for flag, word in pairwise(words) if re.fullmatch("-[a-z]*c", flag)), "")
    if len(script) > MOST_SCRIPT:
        raise AdoptionError(f"the shell's command has more than {MOST_SCRIPT:,} characters")
    script = script.replace("\\\n", " ").strip()
    if _BEYOND.search(script):
        raise AdoptionError(
            "a shell does more than start the engine: put what comes before it into an init container, and what it "
            "decides into arguments"
        )
    if _VARIABLE.search(script):
        raise AdoptionError("a shell fills variables into the engine's command line: write their values there")
    try:
        return shlex.split(script.removeprefix("exec "))
    except ValueError as error:
        raise AdoptionError(f"the shell's command cannot be read: {error}") from None


def _list(value: object) -> list[str]:
    return [str(word) for word in value if isinstance(word, str | int | float)] if isinstance(value, list) else []


def _engine(words: Sequence[str], image: str, *, entrypoint: bool) -> tuple[tuple[str, ...], EngineType, Sequence[str]]:
    """Return the words that start the engine, the engine, and its arguments.

    Args:
        words: command and arguments of the container.
        image: its image.
        entrypoint: True if the container starts the image's entrypoint: that of vLLM's own image is `vllm serve`, whose
            first argument may be the model.
    """
    plain = [word.rpartition("/")[2] for word in words]
    for start, engine in _BY_COMMAND.items():
        for index in range(min(len(plain), 8)):
            if tuple(plain[index : index + len(start)]) == start:
                return tuple(words[: index + len(start)]), engine, words[index + len(start) :]
    if "huggingfaceserver" in image or "huggingfaceserver" in plain:
        raise AdoptionError(
            "KServe's huggingfaceserver serves its API below /openai, where routers do not look: write a group with "
            "vLLM's own image and the same model"
        )
    serves = entrypoint and _SERVES.search(image) is not None
    if not words or words[0].startswith("-") or serves:
        for word, engine in _BY_IMAGE:
            if word in image.rpartition("/")[2] or word in image:
                return (), engine, words
    result = " ".join(words[:3]) or image
    raise AdoptionError(
        f"{result!r} starts neither vLLM nor SGLang: only their servers can be replicas of a PromptGroup"
    )
