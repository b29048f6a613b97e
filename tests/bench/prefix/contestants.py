"""The routers that are compared, each as a command line over the same engines."""

import json
import sys
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from pathlib import Path

from bench.peers import routers
from bench.prefix.shapes import MODEL
from promptgroup_router.contract.fingerprint import fingerprint
from promptgroup_router.contract.table import Policy

ENGINES = 4
KV_TOKENS = 40_000
PINNED = routers.PINNED | {"smg": "1.13.0"}
DECLARED = "You are the assistant of a company that nobody here asks."
"""The prompt of the only group: no request begins with it, so that nothing that is shared is declared."""


@dataclass(frozen=True, slots=True)
class Place:
    """Where a router is to run, and over what."""

    engines: Sequence[str]
    port: int
    other_port: int
    folder: Path


@dataclass(frozen=True, slots=True)
class Contestant:
    """A router with its settings."""

    name: str
    command: Callable[[Place], list[str]]
    package: str = ""
    """Its package, which is installed into an environment of its own; empty for this project's."""


def _promptgroup(policy: Policy) -> Callable[[Place], list[str]]:
    def command(place: Place) -> list[str]:
        slots = [
            {"slot": index, "state": "Ready", "address": url.removeprefix("http://"), "incarnation": "1"}
            for index, url in enumerate(place.engines)
        ]
        revision = {
            "fingerprint": fingerprint(DECLARED),
            "systemBytes": len(DECLARED),
            "weight": 100,
            "prompt": {"system": DECLARED},
            "engine": {"settings": "stand-in", "kvTokens": KV_TOKENS, "prefillTokensPerSecond": 10_000},
            "slots": slots,
        }
        head = {"format": 1, "namespace": "bench", "name": "nobody", "model": MODEL, "policy": policy.value}
        table = {"format": 1, "version": "bench", "groups": [head | {"revisions": [revision]}]}
        path = place.folder / "table.json"
        path.write_text(json.dumps(table))
        flags = ["--host=127.0.0.1", f"--port={place.port}", f"--admin-port={place.other_port}", "--workers=1"]
        return [sys.executable, "-m", "promptgroup_router", f"--table={path}", *flags, "--log-level=WARNING"]

    return command


def _peer(package: str, policy: str) -> Contestant:
    def command(place: Place) -> list[str]:
        binary = str(routers.ROOT / ".cache" / "peers" / f"{package}-{PINNED[package]}" / "bin" / package)
        launch = ["launch"] if package != "vllm-router" else []
        listen = ["--host", "127.0.0.1", "--port", str(place.port)]
        metrics = ["--prometheus-host", "127.0.0.1", "--prometheus-port", str(place.other_port)]
        quiet = ["--log-level", "warn" if launch else "warning"]
        return [binary, *launch, *listen, *metrics, *quiet, "--worker-urls", *place.engines, "--policy", policy]

    return Contestant(f"{package} {policy}", command, package)


CONTESTANTS = (
    Contestant("promptgroup", _promptgroup(Policy.EXPECTED_TTFT)),
    _peer("sglang-router", "cache_aware"),
    _peer("vllm-router", "cache_aware"),
    _peer("smg", "cache_aware"),
    _peer("sglang-router", "round_robin"),
)
"""Round robin is a peer's: this project's router treats prompts that no group declares as those of one pool."""
