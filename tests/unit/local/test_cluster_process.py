import os
import subprocess
import sys
import time
from collections.abc import Callable
from pathlib import Path

from promptgroup_local.cluster import process

SLEEP = ["/bin/sleep", "60"]


def within(seconds: float, holds: Callable[[], bool]) -> bool:
    deadline = time.monotonic() + seconds
    while not holds():
        if time.monotonic() > deadline:
            return False
        time.sleep(0.005)
    return True


def test_output_is_kept_and_a_process_ends_on_request(tmp_path: Path) -> None:
    log = tmp_path / "logs/a.log"
    running = process.start(["/bin/sh", "-c", "echo up $A; exec sleep 60"], log, {"A": "1"})
    assert within(5, lambda: log.read_text() == "up 1\n")
    assert process.alive(running.pid)
    process.stop(running)
    assert not process.alive(running.pid)


def test_a_process_that_ignores_the_request_is_killed(tmp_path: Path) -> None:
    log = tmp_path / "a.log"
    running = process.start(["/bin/sh", "-c", "trap '' TERM; echo up; while :; do sleep 0.01; done"], log)
    assert within(5, lambda: "up" in log.read_text())
    process.stop(running, 0.05)
    assert running.returncode == -9


def test_a_process_ends_with_the_one_that_started_it(tmp_path: Path) -> None:
    script = (
        "import sys; from pathlib import Path; from promptgroup_local.cluster import process\n"
        f"print(process.start({SLEEP}, Path({str(tmp_path / 'log')!r})).pid, flush=True); sys.stdin.read()"
    )
    with subprocess.Popen([sys.executable, "-c", script], stdin=subprocess.PIPE, stdout=subprocess.PIPE) as parent:
        child = int(parent.stdout.readline())
        assert process.alive(child)
        parent.kill()
    assert within(5, lambda: not process.alive(child))


def test_a_stranger_is_ended_by_its_id() -> None:
    running = subprocess.Popen(SLEEP)
    process.end(running.pid, 5)
    assert running.wait(5) == -15
    process.end(running.pid, 5)


def test_what_runs_in_a_folder_or_for_it_is_killed_and_nothing_else(tmp_path: Path) -> None:
    folder, other = tmp_path / "pods", tmp_path / "others"
    (folder / "a").mkdir(parents=True)
    other.mkdir()
    clean = {key: value for key, value in os.environ.items() if key != process.MARK}
    inside = subprocess.Popen(SLEEP, cwd=folder / "a", env=clean, start_new_session=True)
    marked = subprocess.Popen(SLEEP, cwd="/", env={process.MARK: str(folder)}, start_new_session=True)
    strangers = [
        subprocess.Popen(SLEEP, cwd=other, env={process.MARK: str(other)}, start_new_session=True),
        subprocess.Popen(SLEEP, cwd=other, env=clean, start_new_session=True),
    ]
    process.end_all_in(folder)
    assert [inside.wait(5), marked.wait(5)] == [-9, -9]
    assert [stranger.poll() for stranger in strangers] == [None, None]
    for stranger in strangers:
        stranger.kill()
        stranger.wait()
