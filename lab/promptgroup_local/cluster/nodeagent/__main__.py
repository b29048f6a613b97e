"""Run a node: python -m promptgroup_local.cluster.nodeagent (a local cluster starts it)."""

import argparse
import asyncio
import contextlib
import signal
import sys
from pathlib import Path

import uvloop

from promptgroup_local.cluster import images
from promptgroup_local.cluster.certs import Pair
from promptgroup_local.cluster.nodeagent.agent import Agent
from promptgroup_local.cluster.nodeagent.api import Api


def main() -> int:
    """Entry point; returns the exit status."""
    parser = argparse.ArgumentParser(prog="python -m promptgroup_local.cluster.nodeagent", description=__doc__)
    parser.add_argument("--kubeconfig", type=Path, required=True, help="with client certificates")
    parser.add_argument("--certificate", type=Path, required=True, help="to serve the output of containers with")
    parser.add_argument("--key", type=Path, required=True, help="of --certificate")
    parser.add_argument("--node", required=True, metavar="NAME", help="the node's name")
    parser.add_argument("--state", type=Path, required=True, metavar="DIR", help="for pods/ and logs/")
    parser.add_argument("--images", type=Path, metavar="FILE", help='YAML or JSON: {"repository": ["program", ...]}')
    parser.add_argument("--gpus", type=int, default=0, metavar="N", help="nvidia.com/gpu that the node offers")
    parser.add_argument("--hollow", action="store_true", help="engines of all pods run in this one process")
    arguments = parser.parse_args()
    try:
        known = {**images.BUILT_IN, **images.load(arguments.images)}
    except ValueError as error:
        parser.error(str(error))
    serving = Pair(arguments.certificate, arguments.key)
    api = Api(arguments.kubeconfig)
    agent = Agent(
        api,
        arguments.node,
        arguments.state,
        images=known,
        gpus=arguments.gpus,
        serving=serving,
        hollow=arguments.hollow,
    )
    uvloop.run(_run(agent))
    return 0


async def _run(agent: Agent) -> None:
    async with asyncio.TaskGroup() as tasks:
        running = tasks.create_task(agent.run())
        asyncio.get_running_loop().add_signal_handler(signal.SIGTERM, running.cancel)
        with contextlib.suppress(asyncio.CancelledError):
            await running


if __name__ == "__main__":
    sys.exit(main())
