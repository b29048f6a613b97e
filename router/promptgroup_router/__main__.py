"""Command line: run the router."""

import sys

import uvloop

from promptgroup_router import server
from promptgroup_router.base import logs, settings


def main() -> int:
    """Run the router and return the exit status."""
    chosen = settings.parse(sys.argv[1:])
    logs.configure(chosen.log_level, chosen.log_format)
    return uvloop.run(server.run(chosen))


if __name__ == "__main__":
    sys.exit(main())
