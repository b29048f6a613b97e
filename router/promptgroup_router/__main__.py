"""Command line: run the router."""

import os
import sys

import uvloop

from promptgroup_router import server
from promptgroup_router.base import logs, settings
from promptgroup_router.workers import cores, supervisor, worker


def main() -> int:
    """Run the router and return the exit status."""
    chosen = settings.parse(sys.argv[1:])
    given = worker.inherited(os.environ)
    if given is not None:
        logs.configure(chosen.log_level, chosen.log_format, access=chosen.access_log, worker=given.place)
        return uvloop.run(worker.run(chosen, given))
    logs.configure(chosen.log_level, chosen.log_format, access=chosen.access_log)
    workers = chosen.workers or cores.default_workers(cores.read_machine(), chosen)
    if workers == 1:
        return uvloop.run(server.run(chosen))
    return uvloop.run(supervisor.run(chosen, workers))


if __name__ == "__main__":
    sys.exit(main())
