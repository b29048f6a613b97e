"""The routers that are compared, each as a command line over the same engines, and their stand-ins in the simulator."""

import json
import subprocess
import sys
import venv
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from pathlib import Path

from bench.peers import dynamo, prose
from bench.peers.drive import NAME
from bench.peers.mix import ENGINES, GROUPS, KV_TOKENS, MODEL
from promptgroup_contract.fingerprint import fingerprint
from promptgroup_contract.table import Policy
from promptgroup_research.policies.cache_aware import CacheAware
from promptgroup_research.policies.dynamo import Dynamo
from promptgroup_research.policies.ours import Ours
from promptgroup_research.policies.random_choice import PowerOfTwo
from promptgroup_research.policies.session_ring import SessionRing
from promptgroup_research.simulator.world import Router

ROOT = Path(__file__).parents[3]
PINNED = {"sglang-router": "0.3.2", "vllm-router": "0.1.17", "smg": "1.13.0"}
"""From PyPI, each into a virtual environment of its own under .cache/peers."""

OWN_SLOTS = (2, 2, 1, 1, 1, 1)
"""Engines of each group, by its share of requests; all of them form one pool (`sharing: Pool`)."""


@dataclass(frozen=True, slots=True)
class Place:
    """Where a router is to run, and over what."""

    engines: Sequence[str]
    """Base URLs."""
    port: int
    other_port: int
    """For its metrics."""
    folder: Path
    prompts: Sequence[tuple[str, int]]
    """(system prompt, its tokens) of each group."""
    prefill_rate: int
    """As measured when the engines were warmed."""
    kv_tokens: int = KV_TOKENS
    """KV cache of an engine."""


@dataclass(frozen=True, slots=True)
class Contestant:
    """A router with its settings."""

    name: str
    command: Callable[[Place], list[str]]
    header: str = ""
    """Header with the session's id that clients send to it; they send none where this is empty."""
    simulated: Callable[[], Router] | None = None
    """The same policy in the simulator; None where there is none."""
    warmed: bool = False
    """Whether the engines are warmed before, as its operator does."""

    @property
    def ours(self) -> bool:
        """Whether it is this project's."""
        return self.name.startswith("promptgroup")


def own_engines(engines: Sequence[str]) -> list[list[str]]:
    """Engines of each group."""
    assert sum(OWN_SLOTS) == ENGINES
    assert len(OWN_SLOTS) == GROUPS
    left = iter(engines)
    return [[next(left) for _ in range(count)] for count in OWN_SLOTS]


def promptgroup(table: Callable[[Place], list[dict[str, object]]]) -> Callable[[Place], list[str]]:
    """Return the command line of this project's router, with the groups of a table."""

    def command(place: Place) -> list[str]:
        path = place.folder / "table.json"
        path.write_text(json.dumps({"format": 1, "version": "bench", "groups": table(place)}))
        flags = ["--host=127.0.0.1", f"--port={place.port}", f"--admin-port={place.other_port}"]
        return [sys.executable, "-m", "promptgroup_router", f"--table={path}", *flags, "--log-level=WARNING"]

    return command


def _group(place: Place, engines: Sequence[str], policy: Policy, prompt: str, tokens: int) -> dict[str, object]:
    slots = [
        {"slot": index, "state": "Ready", "address": url.removeprefix("http://"), "incarnation": "1"}
        for index, url in enumerate(engines)
    ]
    figures = {"kvTokens": KV_TOKENS, "prefillTokensPerSecond": place.prefill_rate, "stepTokens": MODEL.step_tokens}
    hash_ = fingerprint(prompt)
    revision = {
        "fingerprint": hash_,
        "systemBytes": len(prompt.encode()),
        "weight": 100,
        "tokens": tokens,
        "prompt": {"system": prompt},
        "engine": {"settings": "stand-in", **figures},
        "slots": slots,
    }
    head = {"format": 1, "namespace": "bench", "name": hash_[:8], "model": NAME, "policy": policy.value}
    return {**head, "revisions": [revision]}


def _groups(place: Place) -> list[dict[str, object]]:
    """A group a task, as the operator writes them: own engines, one pool."""
    own = own_engines(place.engines)
    return [
        _group(place, own[index], Policy.EXPECTED_TTFT, prompt, tokens)
        for index, (prompt, tokens) in enumerate(place.prompts)
    ]


def _one_pool(policy: Policy) -> Callable[[Place], list[dict[str, object]]]:
    """All engines in one group, which every request matches by its opening: the policy chooses among all of them."""
    return lambda place: [_group(place, place.engines, policy, prose.OPENING, prose.OPENING_TOKENS)]


def _single(policy: Policy) -> Contestant:
    name = f"promptgroup {policy.value}, one pool"
    return Contestant(name, promptgroup(_one_pool(policy)), simulated=lambda: Ours(policy))


def peer(name: str, *flags: str) -> Callable[[Place], list[str]]:
    """Return the command line of another router, which `install` has put into an environment of its own.

    Args:
        name: its package.
        flags: its settings.
    """
    launch = ["launch"] if name != "vllm-router" else []

    def command(place: Place) -> list[str]:
        listen = ["--host", "127.0.0.1", "--port", str(place.port)]
        metrics = ["--prometheus-host", "127.0.0.1", "--prometheus-port", str(place.other_port)]
        quiet = ["--log-level", "warn" if launch else "warning"]
        binary = str(environment(name, PINNED[name]) / "bin" / name)
        return [binary, *launch, *listen, *metrics, *quiet, "--worker-urls", *place.engines, *flags]

    return command


def _aware(name: str, threshold: float | None = None) -> Contestant:
    """`cache_aware` with its defaults, or with another threshold; the simulator follows SGLang's."""
    label = f"{name} cache_aware" + ("" if threshold is None else ", tuned")
    flags = () if threshold is None else ("--cache-threshold", str(threshold))
    simulated = CacheAware if threshold is None else (lambda: CacheAware(threshold))
    return Contestant(label, peer(name, "--policy", "cache_aware", *flags), simulated=simulated)


def of_dynamo(place: Place) -> list[str]:
    """Return the command line of Dynamo's KV router."""
    return dynamo.command(environment(dynamo.PACKAGE, dynamo.VERSION), place.port, place.folder, list(place.engines))


TUNED = 0.8
"""Best of 0.3 to 0.95, with balance thresholds of 4 to 64 and 1.5 to 3, on the tuning seeds in the simulator."""

CONTESTANTS = (
    Contestant("promptgroup ExpectedTTFT", promptgroup(_groups), simulated=Ours, warmed=True),
    Contestant(
        "promptgroup ExpectedTTFT, session header",
        promptgroup(_groups),
        header="x-session-id",
        simulated=Ours,
        warmed=True,
    ),
    _single(Policy.BOUNDED_LOAD),
    _single(Policy.LEAST_REQUEST),
    _single(Policy.ROUND_ROBIN),
    _aware("sglang-router"),
    _aware("sglang-router", TUNED),
    Contestant("sglang-router power_of_two", peer("sglang-router", "--policy", "power_of_two"), simulated=PowerOfTwo),
    Contestant(
        "sglang-router manual, routing key",
        peer("sglang-router", "--policy", "manual", "--assignment-mode", "min_load"),
        header="x-smg-routing-key",
    ),
    _aware("vllm-router"),
    _aware("vllm-router", TUNED),
    Contestant(
        "vllm-router consistent_hash, session header",
        peer("vllm-router", "--policy", "consistent_hash"),
        header="x-session-id",
        simulated=SessionRing,
    ),
    Contestant(
        "vllm-router sticky_least_loaded, session header",
        peer("vllm-router", "--policy", "sticky_least_loaded"),
        header="x-session-id",
    ),
    Contestant("smg cache_aware", peer("smg", "--policy", "cache_aware")),
    Contestant(dynamo.NAMED, of_dynamo, simulated=Dynamo),
)


def environment(name: str, version: str) -> Path:
    """Return the folder of the virtual environment that `install` makes for a package."""
    return ROOT / ".cache" / "peers" / f"{name}-{version}"


def install(chosen: Sequence[Contestant]) -> None:
    """Have the packages of these peers, each in its own environment.

    Raises:
        subprocess.CalledProcessError: pip could not get one; it has said why.
    """
    packages = {contestant.name.partition(" ")[0] for contestant in chosen}
    if dynamo.PACKAGE in packages:
        dynamo.install(environment(dynamo.PACKAGE, dynamo.VERSION))
    for name in packages & PINNED.keys():
        version = PINNED[name]
        folder = environment(name, version)
        if (folder / "bin" / name).exists():
            continue
        venv.create(folder, with_pip=True, clear=True)
        subprocess.run([folder / "bin" / "pip", "install", "--quiet", f"{name}=={version}"], check=True)
