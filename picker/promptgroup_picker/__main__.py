"""Command line: run the picker."""

import sys

import uvloop

from promptgroup_picker import server, settings
from promptgroup_router.base import logs


def main() -> int:
    """Run the picker and return the exit status."""
    chosen = settings.parse(sys.argv[1:])
    logs.configure(chosen.log_level, chosen.log_format, access=chosen.access_log)
    return uvloop.run(server.run(chosen))


if __name__ == "__main__":
    sys.exit(main())
