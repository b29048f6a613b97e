"""`make demo`: three PromptGroups on a local cluster, measured, scaled, hurt and released.

Brings up a cluster of plain processes, applies manifests/ as a user would, and drives multi-turn sessions of three
tasks: once through the router, once round robin over the same replicas, as a plain Service would. Then it scales a
group, deletes a replica and releases a new prompt under load. All figures are the clients' and the engines'.
"""

import argparse
import asyncio
import os
import shutil
import subprocess
import sys
import time
from collections.abc import Iterable, Iterator, Sequence
from contextlib import contextmanager, nullcontext
from dataclasses import dataclass, replace
from pathlib import Path

import aiohttp
import uvloop
from rich.console import Console
from rich.table import Table

from promptgroup_contract import names
from promptgroup_local import lab
from promptgroup_local.cluster import binaries
from promptgroup_local.kubectl import DEADLINE, POLL, Kubectl, KubectlError, wait_for
from promptgroup_local.load.client import Outcome, Target, drive
from promptgroup_local.load.counters import Counters, measure, scrape
from promptgroup_local.load.prompts import TASKS, system_prompt
from promptgroup_local.load.report import comparison
from promptgroup_local.load.summary import Summary, moved, summarise
from promptgroup_local.load.workload import conversations, sessions, tasks

NAMESPACE = "demo"
MODEL = "meta-llama/Llama-3.1-8B-Instruct"
REPLICAS = 4
CONCURRENCY = 24
"""Sessions at a time: two a replica."""
SESSIONS = 120
"""Sessions of each of the two measured runs, the three tasks in turn."""
WATCHED = 60
"""Sessions that are followed through a change."""
WATCHED_SCALING = 300
"""Sessions that are followed through a scaling step: a share of 1/5 is counted, so it takes more of them."""


@dataclass(frozen=True, slots=True)
class Change:
    """The effect of a change on the sessions that lived through it."""

    name: str
    followed: int
    moved: int
    allowed: str
    """Sessions that must move, by the ring."""
    failed: int
    cold: float
    """Requests that met a cold Tier 1, by the engines."""


class Demo:
    """The steps, in order."""

    def __init__(self, kubectl: Kubectl, console: Console) -> None:
        self._kubectl = kubectl
        self._console = console
        self._seen: dict[str, Counters] = {}

    @property
    def router(self) -> str:
        """Base URL of a router."""
        return lab.router_url(self._kubectl)

    @property
    def router_admin(self) -> str:
        """Base URL of a router's admin port."""
        return lab.router_admin_url(self._kubectl)

    def say(self, text: str) -> None:
        """A line of progress, with the time since the start."""
        self._console.print(f"[dim]{time.monotonic() - _BEGAN:6.1f} s[/dim]  {text}")

    def install(self) -> None:
        """Operator, router, three groups; returns when all replicas are warm."""
        self.say("applying manifests/control (operator) and manifests/router")
        lab.install_operator(self._kubectl)
        if self._kubectl.get("namespace", NAMESPACE) is None:
            self._kubectl.make_namespace(NAMESPACE)
        self._kubectl.run("delete", "promptgroups", "--all", "--wait=true")
        lab.install_router(self._kubectl)
        self.say(f"applying three PromptGroups, {REPLICAS} replicas each: {', '.join(TASKS)}")
        self._kubectl.apply(*(lab.group(task, MODEL, system_prompt(task, 1), replicas=REPLICAS) for task in TASKS))
        for task in TASKS:
            self._kubectl.wait_warm(task, f"{REPLICAS}/{REPLICAS}")
            self.say(f"{task}: {REPLICAS}/{REPLICAS} replicas are warm, and the group is Ready")
        wait_for(lambda: self._answers() or None, "the router to serve the groups")
        self._console.print(self._kubectl.run("get", "promptgroups").stdout.rstrip(), highlight=False)

    def _answers(self) -> bool:
        """Return True if the router has a ready slot of every group."""
        url = f"{lab.router_url(self._kubectl)}/v1/models"
        program = "import sys, urllib.request as u; sys.stdout.write(u.urlopen(sys.argv[1], timeout=2).read().decode())"
        done = subprocess.run([sys.executable, "-c", program, url], capture_output=True, text=True, check=False)
        return done.returncode == 0 and all(f'"{task}"' in done.stdout for task in TASKS)

    # --- two runs over the same replicas -------------------------------------------------------------------

    async def through_router(self) -> Summary:
        """Sessions of all three tasks through the router, matched by the prompt that they bring."""
        self.say(f"{SESSIONS} sessions through the router")
        return await self._run("PromptGroup router", [lab.router_url(self._kubectl)], series=1)

    async def round_robin(self) -> Summary:
        """The same conversations about other cases, round robin over the same replicas."""
        self.say(f"{SESSIONS} sessions round robin over the same replicas")
        return await self._run("round robin", self._engines(TASKS), series=2)

    async def _run(self, name: str, urls: Sequence[str], series: int) -> Summary:
        engines = self._engines(TASKS)
        before = await scrape(engines)
        drawn = conversations(sessions(tasks(), SESSIONS, 1, series=series))
        outcomes = await drive(drawn, Target(urls, MODEL), concurrency=CONCURRENCY)
        measured = measure(before, await scrape(engines))
        warm = [system_prompt(task, 1) for task in TASKS]
        return summarise(name, outcomes, measured, warm=warm)

    # --- changes under load --------------------------------------------------------------------------------

    async def scale(self, task: str = "summarise") -> Change:
        """Add one replica: only sessions that are assigned to the new slot may move."""
        self.say(f"scaling {task} {REPLICAS} → {REPLICAS + 1}")
        followed = conversations(sessions(tasks([task]), WATCHED_SCALING, 3, turns=2))
        target = Target([lab.router_url(self._kubectl)], MODEL)
        cold = await self._cold_requests([task])
        before = await drive(followed, target, concurrency=CONCURRENCY // 2, turns=1)
        self._kubectl.scale("promptgroup", task, REPLICAS + 1)
        await asyncio.to_thread(self._kubectl.wait_warm, task, f"{REPLICAS + 1}/{REPLICAS + 1}")
        await self._routed(task, REPLICAS + 1)
        after = await drive(followed, target, concurrency=CONCURRENCY // 2, turns=1)
        changed, both = moved(before, after)
        return Change(
            name=f"scale {task} {REPLICAS} → {REPLICAS + 1}",
            followed=both,
            moved=changed,
            allowed=f"at most 1/{REPLICAS + 1}: {both / (REPLICAS + 1):.0f}",
            failed=_failures([*before, *after]),
            cold=await self._cold_requests([task]) - cold,
        )

    async def lose(self, task: str = "code") -> Change:
        """Delete one replica while its sessions run: they are served elsewhere and return to its replacement."""
        pod = lab.engine_pods(self._kubectl, task)[0]
        victim, lost = pod["metadata"]["name"], pod["metadata"]["labels"][names.LABEL_SLOT]
        self.say(f"deleting pod {victim} under load")
        followed = conversations(sessions(tasks([task]), WATCHED, 4, turns=6))
        target = Target([lab.router_url(self._kubectl)], MODEL)
        cold = await self._cold_requests([task])
        before = await drive(followed, target, concurrency=CONCURRENCY // 3, turns=1)
        running = asyncio.ensure_future(drive(followed, target, concurrency=CONCURRENCY // 3, turns=4))
        await asyncio.to_thread(self._kubectl.delete, "pod", victim, "--wait=false")
        during = await running
        await asyncio.to_thread(self._kubectl.wait_warm, task, f"{REPLICAS}/{REPLICAS}")
        after = await drive(followed, target, concurrency=CONCURRENCY // 3, turns=1)
        own = sum(outcome.served_by.endswith(f"/{lost}") for outcome in before)
        strangers = {outcome.session for outcome in before if not outcome.served_by.endswith(f"/{lost}")}
        changed, both = moved((outcome for outcome in before if outcome.session in strangers),
                              (outcome for outcome in [*during, *after] if outcome.session in strangers))  # fmt: skip
        return Change(
            name=f"delete a pod of {task}",
            followed=both,
            moved=changed,
            allowed=f"none, or a few that another replica serves sooner ({own} more were on the deleted pod)",
            failed=_failures([*before, *during, *after]),
            cold=await self._cold_requests([task]) - cold,
        )

    async def release(self, task: str = "write") -> Change:
        """A new prompt: running sessions stay on the old one, new ones begin on the new one, warm."""
        self.say(f"releasing a new prompt for {task}; its clients name the group")
        old = self._fingerprint(task)
        followed = conversations(sessions(tasks([task]), WATCHED, 5, turns=4))
        target = Target([lab.router_url(self._kubectl)], MODEL, groups={task: task})
        cold = await self._cold_requests([task])
        before = await drive(followed, target, concurrency=CONCURRENCY // 3, turns=2)
        self._kubectl.patch("promptgroup", task, {"spec": {"prompt": {"system": system_prompt(task, 2)}}})
        running = asyncio.ensure_future(drive(followed, target, concurrency=CONCURRENCY // 3, turns=1))
        await asyncio.to_thread(wait_for, lambda: True if self._fingerprint(task) != old else None, "the release")
        await asyncio.to_thread(self._kubectl.wait_warm, task, f"{REPLICAS}/{REPLICAS}")
        during = await running
        await self._routed(task, REPLICAS)
        after = await drive(followed, target, concurrency=CONCURRENCY // 3, turns=1)
        fresh = conversations(sessions(tasks([task], release=2), WATCHED, 6, turns=1))
        new = await drive(fresh, target, concurrency=CONCURRENCY // 3)
        # among replicas of the old prompt they may move: it has fewer of them while the new one grows
        changed, both = moved(map(_by_revision, before), map(_by_revision, [*during, *after]))
        revision = self._fingerprint(task)[:8]
        on_new = sum(f"/{revision}/" in outcome.served_by for outcome in new)
        return Change(
            name=f"release a prompt of {task}",
            followed=both,
            moved=changed,
            allowed=f"none to the new prompt ({on_new} of {len(new)} new sessions began on it)",
            failed=_failures([*before, *during, *after, *new]),
            cold=await self._cold_requests([task]) - cold,
        )

    # --- looking -------------------------------------------------------------------------------------------

    def _engines(self, of: Iterable[str]) -> list[str]:
        pods = [pod for name in of for pod in lab.engine_pods(self._kubectl, name)]
        return [lab.engine_url(pod) for pod in pods if "podIP" in pod["status"]]  # a pod that is new has no address yet

    def _fingerprint(self, task: str) -> str:
        promptgroup = self._kubectl.get("promptgroup", task) or {}
        return str(promptgroup.get("status", {}).get("fingerprint", ""))

    async def _routed(self, task: str, slots: int) -> None:
        """Wait until the router's own table has so many ready slots on the revision that new sessions go to."""
        url = f"{lab.router_admin_url(self._kubectl)}/table"
        async with aiohttp.ClientSession() as http, asyncio.timeout(DEADLINE):
            while True:
                async with http.get(url) as response:
                    groups = (await response.json())["groups"]
                ready = [
                    sum(slot["state"] == "Ready" for slot in revision["slots"])
                    for group in groups
                    for revision in group["revisions"]
                    if group["name"] == task and revision["weight"]
                ]
                if ready == [slots]:
                    return
                await asyncio.sleep(POLL)

    async def _cold_requests(self, of: Iterable[str]) -> float:
        """Client requests that met a cold Tier 1 so far; for engines that have ended, their last count."""
        result = await asyncio.gather(*(scrape([url]) for url in self._engines(of)), return_exceptions=True)
        for item in result:
            if isinstance(item, dict):
                self._seen.update(item)
        return sum(counters.cold or 0 for counters in self._seen.values())

    def report(self, runs: Sequence[Summary], changes: Sequence[Change]) -> None:
        """The two tables."""
        self._console.print(comparison(runs, title="The same replicas, two ways to reach them"))
        table = Table(title="Changes under load")
        for heading in ("change", "sessions", "moved", "expected to", "failed", "cold"):
            table.add_column(heading, justify="left" if heading in ("change", "expected to") else "right")
        table.caption = "failed: requests without a whole answer; cold: requests that met a cold Tier 1, by the engines"
        for change in changes:
            table.add_row(
                change.name,
                str(change.followed),
                str(change.moved),
                change.allowed,
                str(change.failed),
                f"{change.cold:.0f}",
            )
        self._console.print(table)


def _by_revision(outcome: Outcome) -> Outcome:
    """As if every revision were one replica."""
    return replace(outcome, served_by=outcome.served_by.rpartition("/")[0])


def _failures(outcomes: Iterable[Outcome]) -> int:
    return sum(outcome.failed for outcome in outcomes)


async def _measure(demo: Demo) -> None:
    routed, robin = await demo.through_router(), await demo.round_robin()  # while nothing changes their replicas
    demo.report([robin, routed], [await demo.scale(), await demo.lose(), await demo.release()])


def _cluster(command: str, state: Path) -> str:
    argv = [sys.executable, "-m", "promptgroup_local.cluster", command, f"--state={state}"]
    return subprocess.run(argv, check=True, stdout=subprocess.PIPE, text=True).stdout


_BEGAN = time.monotonic()


def main() -> int:
    """Entry point; returns the exit status."""
    parser = argparse.ArgumentParser(prog="make demo", description=__doc__)
    parser.add_argument("--keep", action="store_true", help="leave the cluster up (KEEP=1)")
    parser.add_argument("--state", type=Path, default=lab.ROOT / ".local", help="folder of the cluster")
    arguments = parser.parse_args()
    console = Console()
    try:
        programs = binaries.find(console.print)
        _cluster("up", arguments.state)
        kubeconfig = Path(_cluster("kubeconfig", arguments.state).strip())
        demo = Demo(Kubectl(kubeconfig, NAMESPACE, binaries.kubectl(programs)), console)
        demo.say("a cluster runs: etcd, API server, controllers, scheduler, one node")
        try:
            demo.install()
            with _looked_at(demo, kubeconfig) if arguments.keep else nullcontext():
                uvloop.run(_measure(demo))
                if arguments.keep:
                    _say_next(demo, console, kubeconfig, binaries.kubectl(programs))
        finally:
            if not arguments.keep:
                _cluster("down", arguments.state)
    except (binaries.MissingPrograms, KubectlError, TimeoutError, subprocess.CalledProcessError) as error:
        console.print(f"[red]error[/red]: {error}", highlight=False)
        return 1
    return 0


@contextmanager
def _looked_at(demo: Demo, kubeconfig: Path) -> Iterator[None]:
    """Serve the page while the demo runs and, at a terminal, until Ctrl-C: the cluster stays up then."""
    argv = [sys.executable, "-m", "promptgroup_cli", *_DASHBOARD, demo.router_admin]
    environment = {**os.environ, "KUBECONFIG": str(kubeconfig)}
    with subprocess.Popen(argv, env=environment, stdout=subprocess.PIPE, text=True) as serving:
        try:
            demo.say(f"look at it: {_address(serving)}")
            yield
            if sys.stdout.isatty():
                demo.say("the page is served until Ctrl-C; the cluster stays up")
                serving.wait()
        except KeyboardInterrupt:
            pass  # Ctrl-C ends it
        finally:
            serving.terminate()


_DASHBOARD = ("dashboard", "-n", NAMESPACE, "--router")


def _address(serving: subprocess.Popen[str]) -> str:
    line = serving.stdout.readline() if serving.stdout is not None else ""
    return line.rpartition(" ")[2].strip() or "the page could not be served"


def _say_next(demo: Demo, console: Console, kubeconfig: Path, kubectl: str) -> None:
    console.print(_next(kubeconfig, kubectl, demo.router, demo.router_admin), highlight=False, soft_wrap=True)


def _next(kubeconfig: Path, kubectl: str, router: str, admin: str) -> str:
    path = "" if shutil.which("kubectl") else f"  export PATH={Path(kubectl).parent}:$PATH    # kubectl\n"
    return f"""The cluster is up. Try:
{path}  export KUBECONFIG={kubeconfig}
  kubectl -n demo get promptgroups,promptroutes,pods
  kubectl -n demo describe promptgroup code
  kubectl -n demo scale promptgroup code --replicas=6
  curl -s {router}/v1/chat/completions -H 'content-type: application/json' \\
       -d '{{"model": "write", "messages": [{{"role": "user", "content": "a poem on caches"}}]}}'
  curl -s {admin}/metrics | grep ^promptgroup
  uv run promptgroup status -n {NAMESPACE}
  uv run promptgroup top -n {NAMESPACE} --router {admin}
  uv run promptgroup {" ".join(_DASHBOARD)} {admin}
  uv run python -m promptgroup_local.cluster down"""


if __name__ == "__main__":
    sys.exit(main())
