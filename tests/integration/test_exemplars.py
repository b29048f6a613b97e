"""Exemplars of a router, as a real Prometheus reads them: the traces of requests that took long."""

import asyncio
import re
import secrets
from datetime import UTC, datetime
from pathlib import Path

import pytest

from promptgroup_local.kubectl import wait_for
from promptgroup_local.ports import free_ports
from promptgroup_router.feed import table_file
from support.fakeengine import Call, engines, until
from support.prometheus import Prometheus, prometheus
from support.routerprocess import started
from support.wire import ask, chat, get, post, run, table_of

pytestmark = pytest.mark.integration

SERIES = "promptgroup_router_request_duration_seconds_bucket"
SLOW = 0.3
"""Seconds that an engine takes for some requests, so that they are in a bucket of their own."""
EACH = 4


async def answer(call: Call) -> None:
    if b"slow" in call.request.body:
        await asyncio.sleep(SLOW)
    call.answer(b"{}")


def traceparent(trace: str, *, sampled: bool) -> str:
    return f"traceparent: 00-{trace}-{secrets.token_hex(8)}-0{sampled:d}"


def counted(server: Prometheus) -> float:
    return sum(float(each["value"][1]) for each in server.ask("promptgroup_router_request_duration_seconds_count"))


@pytest.mark.parametrize("exporting", [True, False], ids=["spans", "no spans"])
def test_a_slow_bucket_leads_to_the_traces_that_are_recorded(tmp_path: Path, exporting: bool) -> None:
    [port, collector] = free_ports(2)
    environment = {"OTEL_SDK_DISABLED": "true"}
    if exporting:  # the ratio records nothing by itself, so that what is recorded is what callers record
        environment = {
            "OTEL_EXPORTER_OTLP_ENDPOINT": f"http://127.0.0.1:{collector}",
            "OTEL_TRACES_SAMPLER": "parentbased_traceidratio",
            "OTEL_TRACES_SAMPLER_ARG": "0",
        }
    quick, slow, unsampled = ({secrets.token_hex(16) for _ in range(EACH)} for _ in range(3))

    async def check() -> None:
        async with engines(2, answer, answer) as found:
            table_file.write(tmp_path / "table.json", table_of(*(engine.address for engine in found)))
            flags = ("--table", str(tmp_path / "table.json"))
            async with started(*flags, **environment) as router:
                await until(lambda: "table" in router.events(), "the router to have a table", 30)
                began = datetime.now(UTC).timestamp()
                for group, body in ((quick, chat()), (slow, chat("slow")), (unsampled, chat("slow"))):
                    for trace in group:  # one after the other: the last of its bucket is kept
                        field = traceparent(trace, sampled=group is not unsampled)
                        assert (await ask(router.port, post(body, field))).status == 200
                assert (await ask(router.port, post(chat("slow")))).status == 200
                ended = datetime.now(UTC).timestamp()
                plain = (await ask(router.admin_port, get("/metrics"))).body.decode()
                assert not re.search(r"trace_id|# EOF", plain)
                await asyncio.to_thread(look, router.admin_port, began, ended)

    def look(admin_port: int, began: float, ended: float) -> None:
        with prometheus(tmp_path, port, {f"127.0.0.1:{admin_port}": {}}) as server:
            wait_for(lambda: counted(server) == 3 * EACH + 1 or None, "all requests to be counted")
            shown = server.exemplars(SERIES)
            assert shown
            for each in shown:
                trace, bound = each["labels"]["trace_id"], float(each["series"]["le"])
                # on a busy machine a quick one takes long as well
                assert trace in quick or (trace in slow and float(each["value"]) >= SLOW)
                assert float(each["value"]) <= bound
                assert began <= each["timestamp"] <= ended
            assert {each["labels"]["trace_id"] for each in shown} & slow

    run(check())
