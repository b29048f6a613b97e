"""`make demo-vllm VLLM=DIR`: the same path with two real vLLM engines on CPU as replicas.

DIR holds a virtual environment with vLLM (`venv/`) and a model folder (`tiny/`: config and tokenizer are enough, the
weights are random). Answers are noise; prefix caching, cached_tokens, cache_salt and metrics are vLLM's own.
"""

import argparse
import sys
import tempfile
from pathlib import Path

import aiohttp
import uvloop
from rich.console import Console

from promptgroup_local import lab
from promptgroup_local.cluster import binaries
from promptgroup_local.cluster.local import LocalCluster
from promptgroup_local.kubectl import Kubectl, wait_for
from promptgroup_local.load.client import Target, drive
from promptgroup_local.load.counters import measure, scrape
from promptgroup_local.load.prompts import system_prompt
from promptgroup_local.load.report import comparison
from promptgroup_local.load.summary import Summary, summarise
from promptgroup_local.load.workload import conversations, sessions, tasks

MODEL = "tiny"
GROUP = "vllm-code"
TASK = "code"
REPLICAS = 2
SESSIONS = 16
CONCURRENCY = 4
START_SECONDS = 420.0
"""Longest start of two engines that share the cores: about a minute each on a free machine."""

ARGS = ["--load-format=dummy", "--dtype=bfloat16", "--max-model-len=8192", "--enforce-eager", "--block-size=32"]
ENVIRONMENT = {
    "VLLM_CPU_KVCACHE_SPACE": "1",
    "VLLM_CPU_OMP_THREADS_BIND": "nobind",
    "OMP_NUM_THREADS": "1",
    "HF_HUB_OFFLINE": "1",
    "TRANSFORMERS_OFFLINE": "1",
}


def image(folder: Path) -> list[str]:
    """VLLM's image on this machine: its entrypoint, run in the folder that has the model."""
    return ["bash", "-c", f'cd "{folder}" && exec venv/bin/vllm serve --host {{pod_ip}} "$@"', "vllm"]


def manifest() -> dict[str, object]:
    """A PromptGroup of two vLLM engines."""
    container = {"name": "engine", "env": [{"name": name, "value": value} for name, value in ENVIRONMENT.items()]}
    found = lab.group(GROUP, MODEL, system_prompt(TASK, 1), replicas=REPLICAS)
    found["spec"]["engine"] |= {
        "image": "vllm/vllm-openai:v0.32.0",
        "args": ARGS,
        "template": {"spec": {"containers": [container]}},
    }
    return found


async def _measure(name: str, urls: list[str], engines: list[str], seed: int) -> Summary:
    before = await scrape(engines)
    drawn = conversations(sessions(tasks([TASK]), SESSIONS, seed, turns=4))
    outcomes = await drive(drawn, Target(urls, MODEL), concurrency=CONCURRENCY)
    measured = measure(before, await scrape(engines))
    return summarise(name, outcomes, measured, warm=[system_prompt(TASK, 1)])


async def _salted(url: str) -> list[tuple[str, int]]:
    """Cached tokens of one request under salt a, a again, and b."""
    message = "This is about case salt-1. Explain the parser and the cache of the build in one sentence."
    found = []
    async with aiohttp.ClientSession() as http:
        for salt in ("a", "a", "b"):
            body = {
                "model": MODEL,
                "messages": [
                    {"role": "system", "content": system_prompt(TASK, 1)},
                    {"role": "user", "content": message},
                ],
                "max_tokens": 1,
                "cache_salt": f"tenant-{salt}",
            }
            async with http.post(f"{url}/v1/chat/completions", json=body) as response:
                usage = (await response.json())["usage"]
            found.append((salt, usage["prompt_tokens_details"]["cached_tokens"]))
    return found


async def _run(kubectl: Kubectl, console: Console) -> None:
    router = lab.router_url(kubectl)
    engines = [lab.engine_url(pod) for pod in lab.engine_pods(kubectl, GROUP)]
    routed = await _measure("PromptGroup router", [router], engines, seed=1)
    robin = await _measure("round robin", engines, engines, seed=2)
    console.print(comparison([robin, routed], title="Two vLLM engines on CPU: hit rates by vLLM's own counters"))
    console.print("cache_salt through the router, cached tokens of one request sent three times:")
    for salt, cached in await _salted(router):
        console.print(f"  tenant-{salt}: {cached}")


def main() -> int:
    """Entry point; returns the exit status."""
    parser = argparse.ArgumentParser(prog="make demo-vllm", description=__doc__)
    parser.add_argument("--vllm", type=Path, required=True, metavar="DIR", help="folder with venv/ and tiny/")
    arguments = parser.parse_args()
    folder = arguments.vllm.expanduser().resolve()
    for part in ("venv/bin/vllm", "tiny/config.json"):
        if not (folder / part).exists():
            parser.error(f"--vllm {folder}: there is no {part}")
    console = Console()
    images = {"vllm/vllm-openai": image(folder)}
    try:
        with tempfile.TemporaryDirectory() as state, LocalCluster(Path(state), images=images, say=console.print) as it:
            kubectl = it.kubectl(GROUP)
            lab.install_operator(kubectl)
            kubectl.run("create", "namespace", GROUP)
            lab.install_router(kubectl)
            console.print(f"starting {REPLICAS} vLLM engines")
            kubectl.apply(manifest())
            kubectl.wait_warm(GROUP, f"{REPLICAS}/{REPLICAS}", START_SECONDS)
            for pod in lab.engine_pods(kubectl, GROUP):
                gate = next(each for each in pod["status"]["conditions"] if each["type"].endswith("/prefix-warm"))
                console.print(f"  {pod['metadata']['name']}: {gate['reason']}: {gate['message']}", highlight=False)
            wait_for(lambda: kubectl.get("promptroute", GROUP), "the route")
            uvloop.run(_run(kubectl, console))
    except (binaries.MissingPrograms, TimeoutError) as error:
        console.print(f"[red]error[/red]: {error}", highlight=False)
        return 1
    return 0


if __name__ == "__main__":
    sys.exit(main())
