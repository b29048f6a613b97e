"""Command line: run the router."""

import os
import sys

from promptgroup_router.base import settings


def main() -> int:
    """Run the router and return the exit status."""
    chosen = settings.parse(sys.argv[1:])
    # --version, --help and wrong flags end above, and need not wait for the program
    import uvloop  # noqa: PLC0415

    from promptgroup_router import server  # noqa: PLC0415
    from promptgroup_router.base import logs  # noqa: PLC0415
    from promptgroup_router.workers import cores, supervisor, worker  # noqa: PLC0415

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
