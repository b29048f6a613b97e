"""`python -m promptgroup_local.engine MODEL [flags of vllm serve]`."""

import asyncio
import contextlib
import os
import signal
import sys

import uvloop

from promptgroup_local.engine.adapters.loaded import AdapterRefusedError
from promptgroup_local.engine.flags import FlagError, Flags, Knobs, knobs, parse
from promptgroup_local.engine.server import serving


def main() -> int:
    """Serve until SIGTERM or SIGINT."""
    try:
        flags, settings = parse(sys.argv[1:]), knobs(os.environ)
    except FlagError as error:
        print(f"error: {error}", file=sys.stderr)
        return 2
    if flags.unknown:
        print(f"warning: no effect on the stand-in engine: {' '.join(flags.unknown)}", file=sys.stderr)
    try:
        uvloop.run(_serve(flags, settings))
    except AdapterRefusedError as error:
        print(f"error: {error}", file=sys.stderr)
        return 1
    except OSError as error:
        print(f"error: --host {flags.host} --port {flags.port}: {error}", file=sys.stderr)
        return 1
    return 0


async def _serve(flags: Flags, settings: Knobs) -> None:
    stop = asyncio.Event()
    loop = asyncio.get_running_loop()
    for number in (signal.SIGTERM, signal.SIGINT):
        loop.add_signal_handler(number, stop.set)
    print(f"stand-in engine for {flags.model} starts", file=sys.stderr)
    with contextlib.suppress(TimeoutError):
        async with asyncio.timeout(settings.startup * settings.time_scale):
            await stop.wait()
            return
    if flags.headless:
        await stop.wait()
        return
    died = asyncio.Event()
    dev_mode = os.environ.get("VLLM_SERVER_DEV_MODE") == "1"
    loads = os.environ.get("VLLM_ALLOW_RUNTIME_LORA_UPDATING", "").strip().lower() in ("1", "true")
    async with serving(flags, settings, dev_mode=dev_mode, died=died, loads_adapters=loads) as url:
        print(f"stand-in engine for {flags.model} serves on {url}", file=sys.stderr)
        await asyncio.wait(
            [asyncio.ensure_future(stop.wait()), asyncio.ensure_future(died.wait())], return_when="FIRST_COMPLETED"
        )
        if died.is_set():
            os._exit(1)  # as the server that is left without an engine: it breaks off what it has


if __name__ == "__main__":
    sys.exit(main())
