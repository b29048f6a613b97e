"""Ten requests a second, streams and whole answers mixed: equal prompts are promoted, with figures that clients see."""

import re
import statistics
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass, replace
from itertools import count
from typing import Any

import pytest

from promptgroup_local import lab
from promptgroup_local.cluster.local import LocalCluster
from promptgroup_local.kubectl import Kubectl, wait_for
from promptgroup_local.load.client import Outcome, Target
from promptgroup_local.load.workload import Conversation, Task
from support.groups import PROMPTS, group
from support.load import Load, endless
from support.routed import routed, routers_know

pytestmark = pytest.mark.integration

NAME = "figures"
ROLLOUT: dict[str, Any] = {
    "steps": [{"weight": 30, "pause": "2s"}],
    "retireAfter": "10s",
    "judge": {"minRequests": 40, "maxTtftRisePercent": 100},
}
"""Limits for engines that do alike on a machine that others use."""
STEP_MS = "30"
"""A step of the engines: their first tokens take long against what a busy machine adds on the way to a client."""
SECONDS = 240
"""Longest release: each step needs its samples."""
OCTAVE = 2.0
"""Two buckets of the routers' histogram."""
FIGURE = re.compile(
    r"(?:time to first token (?P<quantile>p\d+) )?(?P<new>[\d.]+)(?: ms|%)(?: of (?P<share>\w+)[^,;]*)?, "
    r"(?P<old>[\d.]+)(?: ms|%) with the old revision \((?P<turn>\w+) turns by (?P<how>\w+), (?P<streamed>\w+)\)"
)
STREAMS, WHOLE, HALF = True, False, None
seeds = count(1_000_000, 1_000_000)


def released(letter: str, step: str = STEP_MS, rollout: dict[str, Any] = ROLLOUT) -> dict[str, Any]:
    """A group of three that lends, as groups do by default."""
    return group(NAME, PROMPTS[letter], replicas=3, env={"STANDIN_STEP_MS": step}, rollout=rollout)


@pytest.fixture(scope="module")
def kube(cluster: LocalCluster) -> Iterator[Kubectl]:
    """A namespace with a router and the group."""
    with routed(cluster, "figures") as kubectl:
        kubectl.apply(released("a"))
        kubectl.wait_warm(NAME, "3/3")
        routers_know(kubectl, NAME)
        yield kubectl


@dataclass(frozen=True, slots=True)
class Clients:
    """Those that name the group and those that bring its prompt."""

    loads: dict[str, Load]
    """`name` or `content` → their load."""
    since: dict[str, int]
    """Requests of each that ended before."""

    def log(self) -> dict[str, list[Outcome]]:
        """Return what became of their requests so far."""
        return {how: list(load.outcomes[self.since[how] :]) for how, load in self.loads.items()}

    def failed(self) -> list[str]:
        """Return why requests failed."""
        return [each.error for log in self.log().values() for each in log if each.failed]


def sessions(prompt: str, streamed: bool | None) -> Iterator[Conversation]:
    """Short sessions without end."""
    for each in endless(Task("figures", prompt), next(seeds), turns=4):
        yield each if streamed is HALF else replace(each, session=replace(each.session, streamed=streamed))


@contextmanager
def clients(
    kube: Kubectl, *, prompt: str, by_name: bool | None, brought: str = "", at_once: tuple[int, int] = (13, 4)
) -> Iterator[Clients]:
    """About ten requests a second, three of four by name; clients that bring a prompt stream.

    Args:
        kube: the namespace.
        prompt: the one that the group has.
        by_name: how those that name the group ask.
        brought: the prompt of those that bring one; that of the group if empty.
        at_once: how many sessions name the group, and how many bring a prompt, at a time.
    """
    url = [lab.router_url(kube)]
    names = Load(Target(url, "tiny", {"figures": NAME}), sessions(prompt, by_name), int, at_once=at_once[0], pause=0.6)
    contents = Load(Target(url, "tiny"), sessions(brought or prompt, STREAMS), int, at_once=at_once[1], pause=0.6)
    with names, contents:
        loads = {"name": names, "content": contents}
        yield Clients(loads, {how: len(load.outcomes) for how, load in loads.items()})


def revision(kube: Kubectl) -> str:
    return str((kube.get("promptgroup", NAME) or {})["status"]["revision"])


def weights(kube: Kubectl) -> dict[str, int]:
    route = kube.get("promptroute", NAME) or {"spec": {"revisions": []}}
    return {each["fingerprint"][:8]: each["weight"] for each in route["spec"]["revisions"]}


def passed(kube: Kubectl, old: str) -> tuple[str, str] | None:
    """The new revision, and its figures when it passed its step: an event of the group has them."""
    new = revision(kube)
    messages = [each["message"] for each in kube.list("events") if each["reason"] == "NotWorse"]
    found = [each.partition(": ")[2] for each in messages if each.startswith(f"{new} passed step 1 of 1: ")]
    return (new, found[0]) if new != old and found else None


def agree(message: str, log: dict[str, list[Outcome]], *, old: str, new: str) -> list[str]:
    """Look up the figures of a message in the clients' own log; returns what the figures are of.

    Of times it looks at medians: what clients have in their 95th percentile comes from the machine, which others use.
    """
    found = [each.groupdict() for each in FIGURE.finditer(message)]
    assert len(found) == len(message.split("; ")), message
    for each in found:
        for figure, name in ((float(each["new"]), new), (float(each["old"]), old)):
            own = [
                outcome
                for outcome in log[each["how"]]
                if f"/{name}/" in outcome.served_by
                and (outcome.turn == 0) == (each["turn"] == "first")
                and outcome.streamed == (each["streamed"] == "streamed")
            ]
            assert own, (message, name)
            if each["quantile"] == "p50":
                seen = 1000 * statistics.median(outcome.ttft for outcome in own)
                assert 1 / OCTAVE <= figure / seen <= OCTAVE, (message, name, seen)
            elif each["share"] == "requests":
                assert figure == 100 * statistics.mean(outcome.failed for outcome in own), (message, name)
    return [each["quantile"] or each["share"] for each in found]


@pytest.mark.parametrize(
    ("prompts", "by_name", "compared"),
    [
        ("ab", WHOLE, ["requests", "repeated"]),
        ("bc", HALF, ["requests", "p50", "p95", "repeated"]),
    ],
    ids=["by name whole answers, by content streams", "by name half of them streams"],
)
def test_an_equal_prompt_is_promoted_with_figures_that_clients_have_seen(
    kube: Kubectl, prompts: str, by_name: bool | None, compared: list[str]
) -> None:
    old, new = prompts
    before = revision(kube)
    with clients(kube, prompt=PROMPTS[old], by_name=by_name) as running:
        kube.apply(released(new))
        state = lambda: kube.get("promptgroup", NAME)  # noqa: E731
        after, figures = wait_for(lambda: passed(kube, before), "the step to be passed", state, seconds=SECONDS)
        assert agree(figures, running.log(), old=before, new=after) == compared
        wait_for(lambda: True if weights(kube).get(before, 0) == 0 else None, "the take-over", state, seconds=SECONDS)
        assert running.failed() == []


def replicas(kube: Kubectl, name: str) -> tuple[int, int] | None:
    """The weight and the warm replicas of a revision of the group."""
    found = (kube.get("promptgroup", NAME) or {})["status"]["revisions"]
    return next(((each["weight"], each["ready"]) for each in found if each["fingerprint"].startswith(name)), None)


def test_an_equal_prompt_whose_clients_send_it_before_it_is_warm_is_promoted(kube: Kubectl) -> None:
    """They are lent replicas of the old revision first, and bring the new one more than the share of its step.

    Stand-ins are warm before the routers' window shows what clients bring, so that the step begins with one busy
    replica, and anew with two.
    """
    before = revision(kube)
    state = lambda: {  # noqa: E731
        name: (kube.get("promptgroup", NAME) or {})["status"][name] for name in ("conditions", "revisions")
    }
    with clients(kube, prompt=PROMPTS["c"], by_name=HALF, brought=PROMPTS["e"], at_once=(6, 5)) as running:
        kube.apply(released("e"))
        new = wait_for(lambda: name if (name := revision(kube)) != before else None, "the release to begin", state)
        wait_for(
            lambda: True if replicas(kube, new) == (30, 2) else None,
            "the replicas of clients that bring it, at the weight of the step",
            state,
            seconds=SECONDS,
        )
        wait_for(lambda: True if weights(kube).get(before, 0) == 0 else None, "the take-over", state, seconds=SECONDS)
        assert revision(kube) == new
        assert running.failed() == []


def test_a_slower_one_is_rolled_back_with_figures_that_clients_have_seen(kube: Kubectl) -> None:
    before = revision(kube)
    with clients(kube, prompt=PROMPTS["e"], by_name=HALF) as running:
        kube.apply(released("d", step="150"))
        message = str(kube.wait_condition(NAME, "Degraded", "True", "RolledBack")["message"])
        worse, reason, figures = message.split(": ", 2)
        assert (reason, revision(kube)) == ("TimeToFirstToken", before)
        [compared] = agree(figures.partition(" (p=")[0], running.log(), old=before, new=worse)
        assert compared in {"p50", "p95"}
        assert running.failed() == []
