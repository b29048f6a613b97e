import asyncio
import itertools

import aiohttp
import pytest
from aiohttp import web
from hypothesis import given
from hypothesis import strategies as st

from promptgroup_local.cluster.nodeagent.pods import probes

PROBE = {"failureThreshold": 3, "successThreshold": 2}


def fold(looks: list[bool], *, good: bool) -> list[bool]:
    verdict = probes.verdict(PROBE, good=good)
    return [verdict.add(look) for look in looks]


def test_a_state_turns_after_its_threshold_in_a_row() -> None:
    assert fold([False, False, True, False, False, False], good=True) == [True] * 5 + [False]
    assert fold([True, False, True, True], good=False) == [False, False, False, True]


@given(st.lists(st.booleans(), max_size=40), st.booleans())
def test_a_state_turns_only_at_the_end_of_a_run(looks: list[bool], good: bool) -> None:
    states = [good, *fold(looks, good=good)]
    for number, (before, after) in enumerate(itertools.pairwise(states)):
        if before != after:
            needed = 2 if after else 3
            assert looks[number + 1 - needed : number + 1] == [after] * needed


def test_ports_go_by_number_and_by_name() -> None:
    container = {"ports": [{"name": "http", "containerPort": 8000}]}
    assert [probes.port(container, wanted) for wanted in (80, "81", "http", "none")] == [80, 81, 8000, 0]


async def execute(argv: object) -> int:
    return 0 if argv == ["good"] else 1


async def handle(request: web.Request) -> web.Response:
    status = int(request.query["status"])
    return web.Response(status=status, headers={"Location": "/elsewhere"} if status == 302 else {})


def look(probe: dict) -> bool:
    async def run() -> bool:
        application = web.Application()
        application.router.add_get("/", handle)
        runner = web.AppRunner(application)
        await runner.setup()
        site = web.TCPSite(runner, "127.0.0.1", 0)
        await site.start()
        port = runner.addresses[0][1]
        spec = {"ports": [{"name": "http", "containerPort": port}]}
        try:
            async with aiohttp.ClientSession() as http:
                return await probes.look(probe, spec, "127.0.0.1", http, execute)
        finally:
            await runner.cleanup()

    return asyncio.run(run())


@pytest.mark.parametrize(
    ("probe", "success"),
    [
        ({"httpGet": {"path": "/?status=200", "port": "http"}}, True),
        ({"httpGet": {"path": "/?status=302", "port": "http"}}, True),
        ({"httpGet": {"path": "/?status=404", "port": "http"}}, False),
        ({"httpGet": {"path": "/?status=503", "port": "http"}}, False),
        ({"httpGet": {"path": "/", "port": 1}}, False),
        ({"tcpSocket": {"port": "http"}}, True),
        ({"tcpSocket": {"port": 1}}, False),
        ({"exec": {"command": ["good"]}}, True),
        ({"exec": {"command": ["bad"]}}, False),
        ({"sleep": {"seconds": 0}}, True),
        ({"sleep": {"seconds": 9}, "timeoutSeconds": 0.01}, False),
    ],
)
def test_a_look_succeeds_or_fails(probe: dict, success: bool) -> None:
    assert look(probe) is success
