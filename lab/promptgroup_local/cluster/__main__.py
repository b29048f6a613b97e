"""`python -m promptgroup_local.cluster`: a Kubernetes cluster of plain processes on this machine."""

import argparse
import contextlib
import fcntl
import json
import os
import shutil
import signal
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

from promptgroup_local.cluster import binaries, images, process
from promptgroup_local.cluster.controlplane import NotReady
from promptgroup_local.cluster.local import LocalCluster, log_files
from promptgroup_local.kubectl import wait_for

DEFAULT_STATE = Path(__file__).parents[3] / ".local"
"""In the project's folder, where git ignores it."""
STOP_SECONDS = 60.0
"""Longest wait for a cluster to stop: it takes a second."""


def main() -> int:
    """Entry point; returns the exit status."""
    parser = argparse.ArgumentParser(prog="python -m promptgroup_local.cluster", description=__doc__)
    commands = parser.add_subparsers(dest="command", required=True, metavar="COMMAND")
    state = argparse.ArgumentParser(add_help=False)
    state.add_argument("--state", type=Path, default=DEFAULT_STATE, metavar="DIR", help="(default: %(default)s)")
    for name, text in (("up", "start a cluster in the background"), ("serve", "run a cluster until interrupted")):
        command = commands.add_parser(name, help=text, parents=[state])
        command.add_argument("--nodes", type=_positive, default=1, metavar="N")
        command.add_argument("--gpus", type=int, default=64, metavar="N", help="nvidia.com/gpu that each node offers")
        command.add_argument(
            "--images", type=Path, metavar="FILE", help='more images, YAML or JSON: {"repository": ["program", ...]}'
        )
    commands.add_parser("down", help="stop the cluster", parents=[state])
    commands.add_parser("status", help="say whether a cluster runs", parents=[state])
    commands.add_parser("kubeconfig", help="print the path of the kubeconfig", parents=[state])
    logs = commands.add_parser("logs", help="print what a pod's containers wrote", parents=[state])
    logs.add_argument("pod", help="[namespace/]name")
    commands.add_parser("binaries", help="find, download or build the control plane's programs")
    arguments = parser.parse_args()
    try:
        return _COMMANDS[arguments.command](arguments)
    except (binaries.MissingPrograms, NotReady, TimeoutError, ValueError) as error:
        print(f"error: {error}", file=sys.stderr)
        return 1
    except KeyboardInterrupt:
        return 130


def _positive(text: str) -> int:
    if not text.isdigit() or int(text) < 1:
        raise argparse.ArgumentTypeError(f"{text!r} is not a number from 1 on")
    return int(text)


def _up(arguments: argparse.Namespace) -> int:
    folder = arguments.state.resolve()
    if _running(folder):
        print(f"a cluster runs already: export KUBECONFIG={_kubeconfig(folder)}")
        return 0
    images.load(arguments.images)
    binaries.find(_say)
    flags = [f"--nodes={arguments.nodes}", f"--gpus={arguments.gpus}"]
    flags += [f"--images={arguments.images.resolve()}"] if arguments.images else []
    folder.mkdir(parents=True, exist_ok=True)
    argv = [sys.executable, "-m", "promptgroup_local.cluster", "serve", f"--state={folder}", *flags]
    log = folder / "serve.log"
    with log.open("wb") as output:
        serving = subprocess.Popen(argv, stdin=subprocess.DEVNULL, stdout=output, stderr=output, start_new_session=True)

    def up() -> bool | None:
        if serving.poll() is not None:
            raise NotReady(f"the cluster ended: {_last_line(log)} (see {log})")
        return True if _running(folder).get("pid") == serving.pid else None

    try:
        wait_for(up, "the cluster")
    except BaseException:
        process.end(serving.pid, STOP_SECONDS)
        raise
    print(f"export KUBECONFIG={_kubeconfig(folder)}")
    return 0


def _serve(arguments: argparse.Namespace) -> int:
    known = images.load(arguments.images)
    state = arguments.state.resolve()
    state.mkdir(parents=True, exist_ok=True)
    signal.signal(signal.SIGTERM, lambda *_: sys.exit(0))
    with _held(state):
        run = state / "run"
        for pods in run.glob("*/pods"):
            process.end_all_in(pods)
        shutil.rmtree(run, ignore_errors=True)
        with LocalCluster(run, nodes=arguments.nodes, gpus=arguments.gpus, images=known, say=_say) as cluster:
            (state / "cluster.json").write_text(json.dumps({"pid": os.getpid(), "kubeconfig": str(cluster.kubeconfig)}))
            print(f"export KUBECONFIG={cluster.kubeconfig}", flush=True)
            signal.pause()
    return 0


def _say(line: str) -> None:
    print(line, flush=True)


def _down(arguments: argparse.Namespace) -> int:
    running = _running(arguments.state)
    if not running:
        print("no cluster runs")
        return 0
    process.end(int(running["pid"]), STOP_SECONDS)
    print("stopped")
    return 0


def _status(arguments: argparse.Namespace) -> int:
    if not _running(arguments.state):
        print("no cluster runs")
        return 1
    print(f"a cluster runs: export KUBECONFIG={_kubeconfig(arguments.state)}")
    return 0


def _print_kubeconfig(arguments: argparse.Namespace) -> int:
    if not _running(arguments.state):
        print("no cluster runs: start one with `up`", file=sys.stderr)
        return 1
    print(_kubeconfig(arguments.state))
    return 0


def _binaries(_: argparse.Namespace) -> int:
    print(binaries.find(_say))
    return 0


def _logs(arguments: argparse.Namespace) -> int:
    namespace, _, name = arguments.pod.rpartition("/")
    files = log_files(arguments.state / "run", namespace or "default", name)
    if not files:
        print(f"no pod {namespace or 'default'}/{name} has written anything", file=sys.stderr)
        return 1
    for file in files:
        sys.stdout.write(file.read_text(errors="replace"))
    return 0


_COMMANDS = {
    "up": _up,
    "serve": _serve,
    "down": _down,
    "status": _status,
    "kubeconfig": _print_kubeconfig,
    "binaries": _binaries,
    "logs": _logs,
}


# --- which cluster runs: its server holds the lock as long as it lives, however it ends -----------------------------


@contextlib.contextmanager
def _held(state: Path) -> Iterator[None]:
    with (state / "lock").open("w") as lock:
        try:
            fcntl.flock(lock, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except OSError as error:
            raise NotReady(f"a cluster runs in {state} already: stop it with `down`") from error
        (state / "cluster.json").unlink(missing_ok=True)
        try:
            yield
        finally:
            (state / "cluster.json").unlink(missing_ok=True)


def _running(state: Path) -> dict[str, str | int]:
    """Return the state file of the running cluster; empty when none runs or it is not up yet."""
    try:
        with (state / "lock").open() as lock:
            fcntl.flock(lock, fcntl.LOCK_SH | fcntl.LOCK_NB)
            return {}
    except FileNotFoundError:
        return {}
    except BlockingIOError:
        try:
            result: dict[str, str | int] = json.loads((state / "cluster.json").read_text())
        except (FileNotFoundError, ValueError):
            return {}
        return result


def _kubeconfig(state: Path) -> str:
    return str(_running(state)["kubeconfig"])


def _last_line(log: Path) -> str:
    lines = log.read_text(errors="replace").split("\n")
    return next((line for line in reversed(lines) if line.strip()), "it wrote nothing")


if __name__ == "__main__":
    sys.exit(main())
