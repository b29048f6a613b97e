import asyncio
from pathlib import Path

import aiohttp
import pytest

from promptgroup_local.cluster.nodeagent.hollow import ENGINE, HollowPod, command
from promptgroup_local.cluster.nodeagent.pods.container import Machine
from promptgroup_local.engine.flags import FlagError

ADDRESS = "127.77.0.9"


def pod(*containers):
    metadata = {"namespace": "chat", "name": "p", "uid": "u", "resourceVersion": "1"}
    return {"metadata": metadata, "spec": {"containers": list(containers)}}


def engine(*args):
    startup = {"name": "STANDIN_STARTUP_SECONDS", "value": "0"}
    return {"name": "engine", "image": f"{ENGINE}:1", "args": ["tiny", *args], "env": [startup]}


class Api:
    """Takes statuses; answers as the API server would."""

    def __init__(self):
        self.statuses = asyncio.Queue()
        self.deleted = False

    async def request(self, method, path, body, **_):
        if method == "DELETE":
            self.deleted = True
            return {}
        self.statuses.put_nowait(body["status"])
        return pod()

    async def until(self, ready):
        while True:
            status = await asyncio.wait_for(self.statuses.get(), 5)
            if [each["ready"] for each in status["containerStatuses"]] == [ready]:
                return status


async def life(found, check):
    """Run the pod, look at it once it is ready, delete it."""
    api = Api()
    machine = Machine(api, None, {}, Path("/nonexistent"), Path("/nonexistent"), {})
    hollow = HollowPod(machine, found, ADDRESS)
    running = asyncio.ensure_future(hollow.run())
    status = await api.until(ready=True)
    await check(status)
    hollow._context.stop(0)
    await asyncio.wait_for(running, 5)
    assert api.deleted
    return await api.until(ready=False)


def test_an_engine_answers_at_its_pods_address_while_the_pod_lives():
    seen = []

    async def check(status):
        assert status["podIP"] == ADDRESS
        async with aiohttp.ClientSession() as http, http.get(f"http://{ADDRESS}:8000/v1/models") as answer:
            seen.append((await answer.json())["data"][0]["id"])

    last = asyncio.run(life(pod(engine()), check))
    assert seen == ["tiny"]
    assert "terminated" in last["containerStatuses"][0]["state"]


def test_what_is_no_engine_counts_as_ready():
    async def check(status):
        assert status["containerStatuses"][0]["containerID"].startswith("local://")

    asyncio.run(life(pod({"name": "main", "image": "busybox"}), check))


def test_arguments_and_variables_are_those_of_the_container():
    flags, knobs = command(engine("--port=81", "--block-size=32"), ADDRESS)
    assert (flags.model, flags.host, flags.port, flags.block_size, knobs.startup) == ("tiny", ADDRESS, 81, 32, 0)


def test_an_engine_that_would_not_start_says_why():
    with pytest.raises(FlagError):
        command(engine("--block-size=1x"), ADDRESS)
