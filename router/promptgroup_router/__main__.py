"""Command line: run the router."""

import sys

from promptgroup_router.base import settings


def main() -> int:
    """Run the router and return the exit status."""
    chosen = settings.parse(sys.argv[1:])
    # --version, --help and wrong flags end above, and need not wait for the program
    import uvloop  # noqa: PLC0415

    from promptgroup_router import server  # noqa: PLC0415
    from promptgroup_router.base import logs  # noqa: PLC0415

    logs.configure(chosen.log_level, chosen.log_format, access=chosen.access_log)
    return uvloop.run(server.run(chosen))


if __name__ == "__main__":
    sys.exit(main())
