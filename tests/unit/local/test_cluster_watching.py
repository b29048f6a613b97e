import asyncio
from collections.abc import Awaitable, Callable, Mapping
from typing import Any

from promptgroup_local.cluster.nodeagent.pods.status import Container
from promptgroup_local.cluster.nodeagent.watching import until_unhealthy

FAST = {"periodSeconds": 0.01}


def watch(spec: Mapping[str, Any], answers: dict[str, list[bool]]) -> tuple[Mapping[str, Any] | None, list, list]:
    """Watch until a probe wants the container killed, or until the answers are used up.

    Returns:
        The probe, the (started, ready) states told, and the kinds of looks in turn.
    """
    kinds = {id(spec[key]): key.removesuffix("Probe") for key in spec}
    states: list[tuple[bool, bool]] = []
    looks: list[str] = []
    life = Container("c", "web")

    async def run() -> Mapping[str, Any] | None:
        done = asyncio.Event()

        async def look(probe: Mapping[str, Any]) -> bool:
            kind = kinds[id(probe)]
            if not answers[kind]:
                done.set()
                await asyncio.Event().wait()
            looks.append(kind)
            return answers[kind].pop(0)

        def changed() -> None:
            states.append((life.started, life.ready))

        async with asyncio.timeout(5), asyncio.TaskGroup() as tasks:
            watching = tasks.create_task(until_unhealthy(spec, life, look, changed))
            waiting = tasks.create_task(done.wait())
            await asyncio.wait({watching, waiting}, return_when=asyncio.FIRST_COMPLETED)
            found = watching.result() if watching.done() else None
            watching.cancel()
            waiting.cancel()
        return found

    return asyncio.run(run()), states, looks


def test_startup_gates_the_other_probes() -> None:
    spec = {"startupProbe": {**FAST, "failureThreshold": 30}, "readinessProbe": {**FAST}, "livenessProbe": {**FAST}}
    answers = {"startup": [False, False, True], "readiness": [True], "liveness": [True, True]}
    _, states, looks = watch(spec, answers)
    assert looks[:3] == ["startup"] * 3
    assert states[:3] == [(False, False), (True, False), (True, True)]


def test_a_container_that_does_not_start_in_time_is_killed() -> None:
    spec = {"startupProbe": {**FAST, "failureThreshold": 2}, "livenessProbe": FAST}
    failed, states, looks = watch(spec, {"startup": [False] * 1000, "liveness": []})
    assert failed is spec["startupProbe"]
    assert states == [(False, False)]
    assert "liveness" not in looks


def test_without_probes_a_container_is_ready_as_soon_as_it_runs() -> None:
    life = Container("c", "web")

    async def look(_: Mapping[str, Any]) -> bool:
        raise AssertionError("nothing is to be looked at")

    async def run(look: Callable[[Mapping[str, Any]], Awaitable[bool]]) -> None:
        told = asyncio.Event()
        async with asyncio.timeout(5), asyncio.TaskGroup() as tasks:
            watching = tasks.create_task(until_unhealthy({}, life, look, told.set))
            await told.wait()
            watching.cancel()

    asyncio.run(run(look))
    assert (life.started, life.ready) == (True, True)


def test_readiness_comes_and_goes_without_a_kill() -> None:
    spec = {"readinessProbe": {**FAST, "failureThreshold": 2}}
    failed, states, _ = watch(spec, {"readiness": [True, False, True, False, False, True]})
    assert failed is None
    assert [ready for _, ready in states] == [False, True, False, True]


def test_liveness_kills_at_its_threshold() -> None:
    spec = {"livenessProbe": {**FAST, "failureThreshold": 2}}
    failed, _, looks = watch(spec, {"liveness": [True, False, True, False, False, True]})
    assert failed is spec["livenessProbe"]
    assert len(looks) == 5
