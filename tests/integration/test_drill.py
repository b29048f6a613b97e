"""A fault drill under load on a real control plane: each cause is injected into a group of its own, all at one time.

What the operator measures of engines and routers is what is tested here; `tests/property/test_fault_drill.py` has the
same causes for every way to scale, and hours of healthy load, in virtual time. Caches that are too small, a pool that
goes away and drift in a group that sizes itself are in `test_diagnosis`.
"""

import itertools
import threading
import time
from collections import defaultdict
from collections.abc import Collection, Iterator
from contextlib import ExitStack, contextmanager

import pytest

from promptgroup_local import lab
from promptgroup_local.kubectl import Kubectl, wait_for
from promptgroup_local.load.client import Target
from promptgroup_local.load.workload import Conversation, Session, Task, Turn
from support import quickoperator
from support.groups import PROMPTS, group
from support.load import Load, dated, endless
from support.sized import MINUTES, Sized

pytestmark = [pytest.mark.integration, pytest.mark.slow]

SYSTEM = PROMPTS["a"]
SHORT = "You are brief and answer with one sentence. " * 8
"""A declared prompt of about a hundred tokens: what sessions say is most of what is cached."""
CUT = SYSTEM.index("Rule a40")
"""Where a time stands in the prompt of a group whose clients write one into it."""
EDITION = "Second edition.\n"
TWO_WINDOWS = 2 * quickoperator.WINDOW.total_seconds()
BEGINS = frozenset({"", "AwaitingMetrics", "FailedGetMetrics", "NoTraffic", "RoutersUnknown"})
"""Reasons before a window has been seen."""
UNDECIDED = frozenset({"Healthy", "Unexplained"})
"""Reasons that are not wrong while the window holds little of a fault, or something from before it."""
FAULTS = {
    "byte": "PromptDrift",
    "top": "PromptDrift",
    "little": "LowSharing",
    "off": "PrefixCachingDisabled",
    "scaled": "ScalingWave",
    "released": "Release",
}
"""Group → the one reason that is told of it."""
CHANGES = ("scaled", "released")
"""The groups whose cause is a change, before which they are healthy."""


class Told:
    """Every reason of `CacheEffective` that groups have had, and what each said."""

    def __init__(self, kube: Kubectl) -> None:
        self._kube = kube
        self.reasons: dict[str, list[str]] = defaultdict(list)
        self.before: dict[str, list[str]] = {}
        self.messages: dict[tuple[str, str], str] = {}

    def look(self) -> None:
        for each in self._kube.list("promptgroups"):
            name = each["metadata"]["name"]
            for found in each.get("status", {}).get("conditions", ()):
                if found["type"] == "CacheEffective":
                    if self.reasons[name][-1:] != [found["reason"]]:
                        self.reasons[name].append(found["reason"])
                    self.messages[name, found["reason"]] = found["message"]

    def begin_again(self, names: Collection[str]) -> None:
        """Forget what these groups have had: replicas that start are a wave, too."""
        for name in names:
            self.before[name], self.reasons[name] = self.reasons[name], []

    def has(self, *wanted: tuple[str, str]) -> bool | None:
        """Whether each of these groups has had this reason."""
        self.look()
        return all(reason in self.reasons[name] for name, reason in wanted) or None


def long_questions() -> Iterator[Conversation]:
    """Sessions of one turn that share nothing but the declared prompt, which is a small part of them."""
    for number in itertools.count():
        text = " ".join(f"word {number} of {place}" for place in range(300))
        task = Task("little", SHORT)
        yield Conversation(Session(f"little-{number}", task, (Turn(text, 8),), streamed=False))


def talks(name: str) -> Iterator[Conversation]:
    """Sessions of three to eight turns whose history soon is most of what is cached."""
    for number in itertools.count():
        texts = [" ".join(f"point {number} {turn} {place}" for place in range(60)) for turn in range(3 + number % 6)]
        turns = (Turn(f"Case {number}: {texts[0][:300]}", 8), *(Turn(text, 8) for text in texts[1:]))
        yield Conversation(Session(f"talk-{number}", Task(name, SHORT), turns, streamed=False))


def by_the_second() -> str:
    return time.strftime("%H:%M:%S\n")


def test_each_cause_is_named_under_load_and_no_other(quickly_operated: Sized) -> None:
    kube = quickly_operated.kube
    released = threading.Event()

    def edition() -> str:
        return EDITION if released.is_set() else ""

    off = group("off", SYSTEM, replicas=1, args=("--no-enable-prefix-caching",), warmup={"failurePolicy": "Proceed"})
    made = {
        "byte": group("byte", SYSTEM, replicas=1),
        "top": group("top", SYSTEM, replicas=1),
        "little": group("little", SHORT, replicas=1),
        "off": off,
        "scaled": group("scaled", SHORT, replicas=4),
        "released": group("released", SHORT, replicas=1),
    }
    for name, each in made.items():  # a model of its own each: nobody borrows, and who drifts is near one prompt only
        each["spec"]["model"] = f"tiny-{name}"
    kube.apply(*made.values())
    for name in ("byte", "top", "little", "released"):
        kube.wait_warm(name, "1/1")
    kube.wait_warm("scaled", "4/4")
    wait_for(lambda: _serves(kube, "off"), "the engine without a cache to serve")
    told = Told(kube)
    with ExitStack() as loads:

        def load(name: str, system: str, at_once: int = 3, pause: float = 1.0, **target: object) -> None:
            drawn = endless(Task(name, system), turns=0)  # sessions of any length, so that some begin in each window
            loads.enter_context(_load(kube, name, drawn, at_once, pause, **target))

        load("byte", SYSTEM, 1)
        inside = dated(endless(Task("byte", SYSTEM), turns=1), CUT)
        loads.enter_context(_load(kube, "byte", inside, 3, 0.5))
        load("top", SYSTEM, 1)
        load("top", SYSTEM, on_top=by_the_second)
        loads.enter_context(_load(kube, "little", long_questions(), 3, 1.0))
        load("off", SYSTEM)
        # sessions that a change moves are computed anew in their next turns: two thirds of a window of them are seen
        # whenever the window is read, a few seconds of them are not
        loads.enter_context(_load(kube, "scaled", talks("scaled"), 32, 20.0))
        loads.enter_context(_load(kube, "released", talks("released"), 32, 20.0, on_top=edition))

        still = [(name, reason) for name, reason in FAULTS.items() if name not in CHANGES]
        healthy = [(name, "Healthy") for name in CHANGES]
        wait_for(lambda: told.has(*still, *healthy), "each to be told", lambda: told.reasons, MINUTES)

        told.begin_again(CHANGES)
        kube.scale("promptgroup", "scaled", 1)
        kube.patch("promptgroup", "released", {"spec": {"prompt": {"system": EDITION + SHORT}}})
        kube.wait_condition("released", "Ready", "True")
        released.set()
        changed = [(name, FAULTS[name]) for name in CHANGES]
        wait_for(lambda: told.has(*changed), "the changes to be told", lambda: told.reasons, TWO_WINDOWS)
    for name, reason in FAULTS.items():
        assert set(told.reasons[name]) <= BEGINS | UNDECIDED | {reason}, (name, told.reasons[name])
    for name in CHANGES:
        assert set(told.before[name]) <= BEGINS | UNDECIDED | {"ScalingWave"}, (name, told.before[name])
    assert f"from byte {CUT} of" in told.messages["byte", "PromptDrift"]
    assert "from byte 0 of" in told.messages["top", "PromptDrift"]


@contextmanager
def _load(
    kube: Kubectl, model: str, drawn: Iterator[Conversation], at_once: int, pause: float, **target: object
) -> Iterator[None]:
    """So many sessions at a time that bring their prompt."""
    to = Target([lab.router_url(kube)], f"tiny-{model}", **target)  # type: ignore[arg-type]
    with Load(to, drawn, int, at_once, pause):
        yield


def _serves(kube: Kubectl, name: str) -> bool | None:
    found = kube.condition(name, "Ready")
    return True if found.get("status") == "True" else None
