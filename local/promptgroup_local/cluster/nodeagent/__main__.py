"""`python -m promptgroup_local.cluster.nodeagent`: runs one node until told to stop."""

import argparse
import asyncio
import logging
import signal
import sys
from pathlib import Path

from promptgroup_local.cluster import images
from promptgroup_local.cluster.nodeagent.api import Api
from promptgroup_local.cluster.nodeagent.node import Node


def main() -> int:
    """Entry point; returns the exit status."""
    parser = argparse.ArgumentParser(prog="python -m promptgroup_local.cluster.nodeagent", description=__doc__)
    parser.add_argument("--kubeconfig", type=Path, required=True)
    parser.add_argument("--node", required=True, help="name of the node")
    parser.add_argument("--state", type=Path, required=True, help="folder for pods and logs")
    parser.add_argument("--gpus", type=int, default=64, help="nvidia.com/gpu that the node pretends to have")
    parser.add_argument("--images", type=Path, help="JSON file with more images")
    arguments = parser.parse_args()
    logging.basicConfig(level=logging.INFO, format="%(asctime)s %(levelname)-7s %(name)s %(message)s")
    try:
        known = images.load(arguments.images)
    except ValueError as error:
        parser.error(str(error))
    asyncio.run(_run(arguments, known))
    return 0


async def _run(arguments: argparse.Namespace, known: images.Images) -> None:
    async with Api(arguments.kubeconfig) as api:
        node = Node(api, arguments.node, arguments.state, known, arguments.gpus)
        serving = asyncio.ensure_future(node.run())
        for number in (signal.SIGTERM, signal.SIGINT):
            asyncio.get_running_loop().add_signal_handler(number, serving.cancel)
        await asyncio.gather(serving, return_exceptions=True)
        if not serving.cancelled() and serving.exception() is not None:
            raise RuntimeError("the node ended") from serving.exception()


if __name__ == "__main__":
    sys.exit(main())
