"""The program itself: starts with a Deployment's arguments, ends by SIGTERM."""

import os
import re
import signal
import subprocess
import sys
import urllib.request

import pytest

DEADLINE = 90.0


def start(*arguments: str, **environment: str) -> subprocess.Popen[str]:
    return subprocess.Popen(
        [sys.executable, "-m", "promptgroup_local.engine", *arguments],
        stderr=subprocess.PIPE,
        text=True,
        env=os.environ | environment,
    )


@pytest.mark.heavy
@pytest.mark.parametrize("number", [signal.SIGTERM, signal.SIGINT])
def test_it_serves_until_it_is_told_to_end(number: int) -> None:
    with start("m", "--host=127.0.0.1", "--port=0", "--api-key", "secret", STANDIN_STARTUP_SECONDS="0") as engine:
        assert engine.stderr is not None
        try:
            assert engine.stderr.readline() == "warning: no effect on the stand-in engine: --api-key\n"
            assert engine.stderr.readline() == "stand-in engine for m starts\n"
            url = re.search(r"http://127\.0\.0\.1:\d+$", engine.stderr.readline().strip())
            assert url is not None
            with urllib.request.urlopen(f"{url.group()}/health", timeout=DEADLINE) as response:
                assert response.status == 200
            engine.send_signal(number)
            assert engine.wait(DEADLINE) == 0
            assert engine.stderr.read() == ""
        finally:
            engine.kill()


@pytest.mark.heavy
def test_it_ends_while_it_starts() -> None:
    with start("m", "--host=127.0.0.1", "--port=0", STANDIN_STARTUP_SECONDS="600") as engine:
        assert engine.stderr is not None
        try:
            assert engine.stderr.readline() == "stand-in engine for m starts\n"
            engine.send_signal(signal.SIGTERM)
            assert engine.wait(DEADLINE) == 0
        finally:
            engine.kill()


@pytest.mark.heavy
@pytest.mark.parametrize(
    ("arguments", "environment", "status", "message"),
    [
        ([], {}, 2, "error: MODEL is missing"),
        (["m"], {"STANDIN_TIME_SCALE": "x"}, 2, "error: STANDIN_TIME_SCALE is 'x', expected a number from 0"),
        (["m", "--host=192.0.2.1"], {"STANDIN_STARTUP_SECONDS": "0"}, 1, "error: --host 192.0.2.1 --port 8000: "),
    ],
)
def test_what_it_cannot_do_is_one_line(
    arguments: list[str], environment: dict[str, str], status: int, message: str
) -> None:
    with start(*arguments, **environment) as engine:
        assert engine.stderr is not None
        assert engine.wait(DEADLINE) == status
        *_, last = engine.stderr.readlines()
        assert last.startswith(message)


@pytest.mark.heavy
def test_a_worker_of_a_replica_of_several_nodes_serves_nothing_until_it_is_told_to_end() -> None:
    several = ("-tp=2", "--nnodes=2", "--node-rank=1", "--headless")
    with start("m", "--host=127.0.0.1", "--port=0", *several, STANDIN_STARTUP_SECONDS="0") as engine:
        assert engine.stderr is not None
        try:
            assert engine.stderr.readline() == "stand-in engine for m starts\n"
            engine.send_signal(signal.SIGTERM)
            assert engine.wait(DEADLINE) == 0
            assert engine.stderr.read() == ""
        finally:
            engine.kill()
