"""Real vLLM engines on CPU as replicas of a local cluster.

A folder holds a virtual environment with vLLM (`venv/`) and a model (`tiny/`: config and tokenizer are enough, the
weights are random). Answers are noise; prefix caching, cached_tokens, cache_salt and metrics are vLLM's own.
"""

import argparse
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

from promptgroup_local import lab
from promptgroup_local.cluster.images import Images
from promptgroup_local.load.prompts import system_prompt

MODEL = "tiny"
TASK = "code"
REPLICAS = 2
START_SECONDS = 420.0
"""Longest start of two engines that share the cores: about a minute each on a free machine."""

_REPOSITORY = "vllm/vllm-openai"
_ARGS = ("--load-format=dummy", "--dtype=bfloat16", "--enforce-eager", "--block-size=32")
"""32: CPU engines take multiples of it only."""
_ENVIRONMENT = {
    "VLLM_CPU_KVCACHE_SPACE": "1",
    "VLLM_CPU_OMP_THREADS_BIND": "nobind",
    "OMP_NUM_THREADS": "1",
    "HF_HUB_OFFLINE": "1",
    "TRANSFORMERS_OFFLINE": "1",
}


def folder(program: str, description: str | None, argv: Sequence[str] | None = None) -> Path:
    """The folder that the command line names; ends the program when there is no vLLM in it."""
    parser = argparse.ArgumentParser(prog=program, description=description)
    parser.add_argument("--vllm", type=Path, required=True, metavar="DIR", help="folder with venv/ and tiny/")
    found: Path = parser.parse_args(argv).vllm.expanduser().resolve()
    for part in ("venv/bin/vllm", "tiny/config.json"):
        if not (found / part).exists():
            parser.error(f"--vllm {found}: there is no {part}")
    return found


def images(found: Path) -> Images:
    """VLLM's image on this machine: its entrypoint, run in the folder that has the model."""
    return {_REPOSITORY: ["bash", "-c", f'cd "{found}" && exec venv/bin/vllm serve --host {{pod_ip}} "$@"', "vllm"]}


def served(found: Path, model: str, port: int, args: Sequence[str] = ()) -> tuple[list[str], dict[str, str]]:
    """Command and environment of one engine on this machine's loopback, to be run in the folder."""
    options = ["--host=127.0.0.1", f"--port={port}", f"--served-model-name={model}", "--enable-prompt-tokens-details"]
    return [str(found / "venv/bin/vllm"), "serve", "./tiny", *options, *_ARGS, *args], dict(_ENVIRONMENT)


def group(name: str, args: Sequence[str], environment: Mapping[str, str] | None = None, **spec: Any) -> dict[str, Any]:
    """A PromptGroup of vLLM engines for the prompt of one task."""
    variables = {**_ENVIRONMENT, **(environment or {})}
    container = {"name": "engine", "env": [{"name": key, "value": value} for key, value in variables.items()]}
    found = lab.group(name, MODEL, system_prompt(TASK, 1), image=f"{_REPOSITORY}:v0.32.0", **spec)
    found["spec"]["engine"] |= {"args": [*_ARGS, *args], "template": {"spec": {"containers": [container]}}}
    return found
