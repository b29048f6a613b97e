"""Superseded revisions under load that never ends, and replicas whose requests outlast their drain."""

import asyncio
import threading
from concurrent.futures import ThreadPoolExecutor
from typing import Any

import aiohttp
import pytest

from promptgroup_local import lab
from promptgroup_local.kubectl import Kubectl, wait_for
from support.groups import PROMPTS, group
from support.load import sessions_by_name
from support.routed import routers_know

pytestmark = pytest.mark.integration

NAME = "busy"
SLOW = {"STANDIN_PREFILL_TOKENS_PER_SECOND": "2000", "STANDIN_STEP_MS": "30"}
"""Engines that a dozen new sessions keep busy, so that their overflow is lent."""


def busy(letter: str) -> dict[str, Any]:
    return group(NAME, PROMPTS[letter], replicas=2, env=SLOW, rollout={"retireAfter": "15s"})


def alive(kube: Kubectl) -> dict[str, int]:
    """Revision → pods that do not terminate."""
    found: dict[str, int] = {}
    for each in lab.engine_pods(kube, NAME):
        revision = each["metadata"]["labels"]["promptgroup.dev/revision"]
        found[revision] = found.get(revision, 0) + 1
    return found


@pytest.mark.usefixtures("operator")
def test_three_releases_under_endless_load_leave_one_revision_with_replicas(kube: Kubectl) -> None:
    lab.install_router(kube)
    kube.apply(busy("a"))
    kube.wait_warm(NAME, "2/2")
    routers_know(kube, NAME)
    with sessions_by_name(lab.router_url(kube), NAME, batch=24, turns=1, concurrency=12) as outcomes:
        for letter in "bcd":
            before = kube.get("promptgroup", NAME)["status"]["fingerprint"]  # type: ignore[index]
            kube.apply(busy(letter))

            def served(before: str = before) -> bool | None:
                status = (kube.get("promptgroup", NAME) or {})["status"]
                took_over = status["fingerprint"] != before and status["warm"] == "2/2"
                return True if took_over else None

            wait_for(served, f"prompt {letter} to serve", lambda: kube.get("promptgroup", NAME), seconds=180)
        wait_for(lambda: True if list(alive(kube).values()) == [2] else None, "one revision", lambda: alive(kube), 120)
    assert [each.error for each in outcomes if each.failed] == []


async def _long_answer(url: str, begun: threading.Semaphore) -> int:
    """Ask an engine for an answer of minutes; returns the bytes that came before it was cut.

    It releases `begun` once there are some.
    """
    body = {"model": "tiny", "messages": [{"role": "user", "content": "go on"}], "stream": True, "max_tokens": 4000}
    came = 0
    try:
        async with aiohttp.ClientSession() as session, session.post(f"{url}/v1/chat/completions", json=body) as answer:
            async for chunk in answer.content.iter_any():
                if not came:
                    begun.release()
                came += len(chunk)
    except aiohttp.ClientError:
        pass
    return came


@pytest.mark.usefixtures("operator")
def test_a_replica_goes_at_its_drain_timeout_whatever_still_runs_on_it(kube: Kubectl) -> None:
    def sized(replicas: int, timeout: str) -> dict[str, Any]:
        slow = {"STANDIN_STEP_MS": "200", "STANDIN_MAX_TOKENS": "4000"}
        return group("drains", replicas=replicas, env=slow, rollout={"drainTimeout": timeout})

    kube.apply(sized(2, "10s"))
    kube.wait_warm("drains", "2/2")
    urls = [lab.engine_url(each) for each in lab.engine_pods(kube, "drains")]

    begun = threading.Semaphore(0)

    async def both() -> list[int]:
        return await asyncio.gather(*(_long_answer(url, begun) for url in urls))

    with ThreadPoolExecutor(1) as executor:
        running = executor.submit(asyncio.run, both())
        assert all(begun.acquire(timeout=60) for _ in urls)
        kube.apply(sized(1, "10s"))
        wait_for(
            lambda: True if len(lab.engine_pods(kube, "drains")) == 1 else None,
            "the replica to go",
            lambda: lab.engine_pods(kube, "drains"),
            60,
        )
        assert not running.done()  # the other replica's answer goes on
        kube.delete("promptgroup", "drains")
        assert all(running.result(timeout=120))
