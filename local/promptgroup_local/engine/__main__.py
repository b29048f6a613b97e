"""`python -m promptgroup_local.engine MODEL [flags of vllm serve]`."""

import asyncio
import contextlib
import os
import signal
import sys

import uvloop
from aiohttp import web

from promptgroup_local.engine.flags import FlagError, Flags, Knobs, knobs, parse
from promptgroup_local.engine.server import application

DRAIN_SECONDS = 5.0
"""How long running requests may take to end after SIGTERM."""


def main() -> int:
    """Serve until SIGTERM or SIGINT."""
    try:
        flags, settings = parse(sys.argv[1:]), knobs(os.environ)
    except FlagError as error:
        print(f"error: {error}", file=sys.stderr)
        return 2
    if flags.unknown:
        print(f"warning: no effect on the stand-in engine: {' '.join(flags.unknown)}", file=sys.stderr)
    uvloop.run(_serve(flags, settings))
    return 0


async def _serve(flags: Flags, settings: Knobs) -> None:
    stop = asyncio.Event()
    loop = asyncio.get_running_loop()
    for number in (signal.SIGTERM, signal.SIGINT):
        loop.add_signal_handler(number, stop.set)
    with contextlib.suppress(TimeoutError):
        async with asyncio.timeout(settings.startup * settings.time_scale):
            await stop.wait()
            return
    dev_mode = os.environ.get("VLLM_SERVER_DEV_MODE") == "1"
    app = application(flags, settings, dev_mode=dev_mode)
    runner = web.AppRunner(app, access_log=None, handler_cancellation=True, shutdown_timeout=DRAIN_SECONDS)
    await runner.setup()
    try:
        await web.TCPSite(runner, flags.host, flags.port).start()
        print(f"stand-in engine for {flags.model} on http://{flags.host}:{flags.port}", file=sys.stderr)
        await stop.wait()
    finally:
        await runner.cleanup()


if __name__ == "__main__":
    sys.exit(main())
