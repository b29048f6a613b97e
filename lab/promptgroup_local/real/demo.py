"""`make demo-vllm VLLM=DIR`, `make demo-sglang SGLANG=DIR`: the same path with two real engines on CPU as replicas."""

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
from promptgroup_local.real.engine import MODEL, REPLICAS, START_SECONDS, TASK, RealEngine, chosen
from promptgroup_local.real.sglang import SGLANG
from promptgroup_local.real.vllm import VLLM

GROUP = "real-code"
SESSIONS = 16
CONCURRENCY = 4


async def _measure(name: str, urls: list[str], engines: list[str], seed: int) -> Summary:
    before = await scrape(engines)
    drawn = conversations(sessions(tasks([TASK]), SESSIONS, seed, turns=4))
    outcomes = await drive(drawn, Target(urls, MODEL), concurrency=CONCURRENCY)
    measured = measure(before, await scrape(engines))
    return summarise(name, outcomes, measured, warm=[system_prompt(TASK, 1)])


async def _salted(url: str) -> list[tuple[str, int]]:
    """Cached tokens of one request under salt a, a again, and b."""
    message = "This is about case salt-1. Explain the parser and the cache of the build in one sentence."
    result = []
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
            result.append((salt, usage["prompt_tokens_details"]["cached_tokens"]))
    return result


async def _run(kubectl: Kubectl, engine: RealEngine, console: Console) -> None:
    router = lab.router_url(kubectl)
    engines = [lab.engine_url(pod) for pod in lab.engine_pods(kubectl, GROUP)]
    routed = await _measure("PromptGroup router", [router], engines, seed=1)
    robin = await _measure("round robin", engines, engines, seed=2)
    title = f"Two {engine.name} engines on CPU: hit rates by {engine.name}'s own counters"
    console.print(comparison([robin, routed], title=title))
    console.print("cache_salt through the router, cached tokens of one request sent three times:")
    for salt, cached in await _salted(router):
        console.print(f"  tenant-{salt}: {cached}")


def main() -> int:
    """Entry point; returns the exit status."""
    engine, folder = chosen((VLLM, SGLANG), "promptgroup_local.real.demo", __doc__)
    console = Console()
    try:
        with (
            tempfile.TemporaryDirectory() as state,
            LocalCluster(Path(state), images=engine.images(folder), say=console.print) as it,
        ):
            kubectl = it.kubectl(GROUP)
            lab.install_operator(kubectl)
            kubectl.make_namespace(GROUP)
            lab.install_router(kubectl)
            console.print(f"starting {REPLICAS} {engine.name} engines")
            routing = {"allowedEngineFields": ["cache_salt"]}
            kubectl.apply(engine.group(GROUP, replicas=REPLICAS, routing=routing))
            kubectl.wait_warm(GROUP, f"{REPLICAS}/{REPLICAS}", START_SECONDS)
            for pod in lab.engine_pods(kubectl, GROUP):
                gate = next(
                    condition for condition in pod["status"]["conditions"] if condition["type"].endswith("/prefix-warm")
                )
                console.print(
                    f"  {pod['metadata']['name']}: {gate['reason']}: {gate['message']}", highlight=False, soft_wrap=True
                )
            wait_for(lambda: kubectl.get("promptroute", GROUP), "the route")
            uvloop.run(_run(kubectl, engine, console))
    except (binaries.MissingPrograms, TimeoutError) as error:
        console.print(f"[red]error[/red]: {error}", highlight=False)
        return 1
    return 0


if __name__ == "__main__":
    sys.exit(main())
