"""`python -m promptgroup_local.cluster`: a Kubernetes cluster of plain processes on this machine."""

import argparse
import json
import os
import signal
import subprocess
import sys
import time
from pathlib import Path

from promptgroup_local.cluster import binaries, process
from promptgroup_local.cluster.controlplane import NotReady
from promptgroup_local.cluster.local import LocalCluster
from promptgroup_local.kubectl import wait_for

DEFAULT_STATE = Path(".local")


def main() -> int:
    """Entry point; returns the exit status."""
    parser = argparse.ArgumentParser(prog="python -m promptgroup_local.cluster", description=__doc__)
    parser.add_argument("--state", type=Path, default=DEFAULT_STATE, help="folder of the cluster (default: .local)")
    commands = parser.add_subparsers(dest="command", required=True, metavar="COMMAND")
    for name, text in (("up", "start a cluster in the background"), ("serve", "run a cluster until interrupted")):
        command = commands.add_parser(name, help=text)
        command.add_argument("--nodes", type=int, default=1)
        command.add_argument("--gpus", type=int, default=64, help="nvidia.com/gpu that each node pretends to have")
        command.add_argument("--images", type=Path, help='JSON file with more images: {"repository": ["program", ...]}')
    commands.add_parser("down", help="stop the cluster")
    commands.add_parser("status", help="say whether a cluster runs")
    commands.add_parser("kubeconfig", help="print the path of the kubeconfig")
    commands.add_parser("binaries", help="find, download or build the control plane's programs")
    logs = commands.add_parser("logs", help="print what a pod's containers wrote")
    logs.add_argument("pod", help="[namespace/]name")
    arguments = parser.parse_args()
    try:
        return _COMMANDS[arguments.command](arguments)
    except (binaries.MissingPrograms, NotReady, TimeoutError) as error:
        print(f"error: {error}", file=sys.stderr)
        return 1


def _up(arguments: argparse.Namespace) -> int:
    if _pid(arguments.state):
        print(f"a cluster runs already: export KUBECONFIG={_kubeconfig(arguments.state)}")
        return 0
    binaries.find(print)
    flags = [f"--nodes={arguments.nodes}", f"--gpus={arguments.gpus}"]
    flags += [f"--images={arguments.images}"] if arguments.images else []
    folder = arguments.state.resolve()
    folder.mkdir(parents=True, exist_ok=True)
    argv = [sys.executable, "-m", "promptgroup_local.cluster", f"--state={folder}", "serve", *flags]
    with (folder / "serve.log").open("wb") as log:
        serving = subprocess.Popen(argv, stdin=subprocess.DEVNULL, stdout=log, stderr=log, start_new_session=True)

    def up() -> bool | None:
        if serving.poll() is not None:
            raise NotReady(f"the cluster ended: see {folder / 'serve.log'}")
        return True if _pid(folder) else None

    wait_for(up, "the cluster")
    print(f"export KUBECONFIG={_kubeconfig(folder)}")
    return 0


def _serve(arguments: argparse.Namespace) -> int:
    images = json.loads(arguments.images.read_text()) if arguments.images else {}
    file = arguments.state / "cluster.json"
    run = arguments.state / "run" / f"{time.strftime('%Y%m%d-%H%M%S')}-{os.getpid()}"
    signal.signal(signal.SIGTERM, lambda *_: sys.exit(0))
    try:
        with LocalCluster(run, nodes=arguments.nodes, gpus=arguments.gpus, images=images, say=print) as cluster:
            file.write_text(json.dumps({"pid": os.getpid(), "kubeconfig": str(cluster.kubeconfig), "folder": str(run)}))
            print(f"export KUBECONFIG={cluster.kubeconfig}", flush=True)
            signal.pause()
    except KeyboardInterrupt:
        pass
    finally:
        file.unlink(missing_ok=True)
    return 0


def _down(arguments: argparse.Namespace) -> int:
    pid = _pid(arguments.state)
    if pid is None:
        print("no cluster runs")
        return 0
    process.end(pid, 60)
    print("stopped")
    return 0


def _status(arguments: argparse.Namespace) -> int:
    if _pid(arguments.state) is None:
        print("no cluster runs")
        return 1
    print(f"a cluster runs: export KUBECONFIG={_kubeconfig(arguments.state)}")
    return 0


def _print_kubeconfig(arguments: argparse.Namespace) -> int:
    if _pid(arguments.state) is None:
        print("no cluster runs: start one with `up`", file=sys.stderr)
        return 1
    print(_kubeconfig(arguments.state))
    return 0


def _binaries(_: argparse.Namespace) -> int:
    print(binaries.find(print))
    return 0


def _logs(arguments: argparse.Namespace) -> int:
    namespace, _, name = arguments.pod.rpartition("/")
    found = _state(arguments.state)
    files = sorted(Path(found.get("folder", "-")).glob(f"*/logs/{namespace or 'default'}_{name}_*.log"))
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


def _state(folder: Path) -> dict[str, str]:
    try:
        found: dict[str, str] = json.loads((folder / "cluster.json").read_text())
    except (FileNotFoundError, ValueError):
        return {}
    return found


def _pid(folder: Path) -> int | None:
    pid = _state(folder).get("pid")
    return int(pid) if pid is not None and process.alive(int(pid)) else None


def _kubeconfig(folder: Path) -> str:
    return _state(folder)["kubeconfig"]


if __name__ == "__main__":
    sys.exit(main())
