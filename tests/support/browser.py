"""A real Chromium without a window, driven by the Chrome DevTools Protocol over one WebSocket."""

import asyncio
import base64
import itertools
import json
import os
import shutil
import signal
import subprocess
from collections.abc import Awaitable, Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import IO, Any

import aiohttp
import pytest

from promptgroup_local.kubectl import wait_for

PROGRAMS = ("chromium-headless-shell", "chromium", "chromium-browser", "google-chrome")
DEADLINE = 30.0


def find_browser() -> str:
    """Path of a browser. Where there is none the test is skipped, aloud; where CHROMIUM names one it fails instead."""
    named = os.environ.get("CHROMIUM", "")
    found = next(filter(None, map(shutil.which, [named] if named else PROGRAMS)), None)
    if named and found is None:
        pytest.fail(f"CHROMIUM is {named!r}, which is no program")
    if found is None:
        pytest.skip(f"no browser: install one of {', '.join(PROGRAMS)} (Debian: apt install chromium)")
    return found


class Page:
    """A page of the browser, and all that it complained about and asked for."""

    def __init__(self, socket: aiohttp.ClientWebSocketResponse) -> None:
        self._socket = socket
        self._numbers = itertools.count(1)
        self._waiting: dict[int, asyncio.Future[dict[str, Any]]] = {}
        self.errors: list[str] = []
        """Exceptions, errors of the console, and what the page's policy refused."""
        self.requests: list[str] = []
        """URLs that were asked for."""
        self._reader = asyncio.ensure_future(self._read())

    async def _read(self) -> None:
        async for message in self._socket:
            told = json.loads(message.data)
            if "id" in told:
                self._waiting.pop(told["id"]).set_result(told)
                continue
            facts = told.get("params", {})
            match told["method"]:
                case "Runtime.exceptionThrown":
                    self.errors.append(json.dumps(facts["exceptionDetails"])[:2000])
                case "Runtime.consoleAPICalled" if facts["type"] in ("error", "warning", "assert"):
                    self.errors.append(json.dumps(facts["args"])[:2000])
                case "Log.entryAdded" if facts["entry"]["level"] in ("error", "warning"):
                    self.errors.append(f"{facts['entry']['text']} {facts['entry'].get('url', '')}")
                case "Network.requestWillBeSent":
                    self.requests.append(facts["request"]["url"])

    async def call(self, method: str, **params: Any) -> dict[str, Any]:
        """Call a method of the protocol and return its result."""
        number = next(self._numbers)
        self._waiting[number] = asyncio.get_running_loop().create_future()
        await self._socket.send_json({"id": number, "method": method, "params": params})
        told = await asyncio.wait_for(self._waiting[number], DEADLINE)
        assert "error" not in told, f"{method}: {told['error']}"
        result: dict[str, Any] = told["result"]
        return result

    async def open(self, url: str) -> None:
        await self.call("Page.navigate", url=url)

    async def run(self, expression: str) -> Any:
        """Return the value of an expression, awaited if it is a promise."""
        told = await self.call("Runtime.evaluate", expression=expression, returnByValue=True, awaitPromise=True)
        assert "exceptionDetails" not in told, told["exceptionDetails"]
        return told["result"].get("value")

    async def until(self, expression: str) -> None:
        """Wait until an expression is true."""
        async with asyncio.timeout(DEADLINE):
            holds = f"(() => {{ try {{ return Boolean({expression}) }} catch {{ return false }} }})()"
            while not await self.run(holds):
                await self.run("new Promise((done) => setTimeout(done, 20))")

    async def press(self, key: str, *, shift: bool = False) -> None:
        """Press a key, such as Tab or Enter."""
        codes = {"Tab": 9, "Enter": 13, " ": 32, "Escape": 27}
        common = {"key": key, "code": "Space" if key == " " else key, "windowsVirtualKeyCode": codes[key]}
        common |= {"modifiers": 8 if shift else 0}
        text = {"Enter": "\r", " ": " "}.get(key)
        await self.call("Input.dispatchKeyEvent", type="keyDown", **common, **({"text": text} if text else {}))
        await self.call("Input.dispatchKeyEvent", type="keyUp", **common)

    async def type(self, text: str) -> None:
        await self.call("Input.insertText", text=text)

    async def prefer(self, *, scheme: str = "light", motion: str = "no-preference") -> None:
        """Set what the user prefers: the colour scheme, and reduced motion."""
        features = [
            {"name": "prefers-color-scheme", "value": scheme},
            {"name": "prefers-reduced-motion", "value": motion},
        ]
        await self.call("Emulation.setEmulatedMedia", features=features)

    async def resize(self, width: int, height: int, scale: float = 1) -> None:
        await self.call(
            "Emulation.setDeviceMetricsOverride", width=width, height=height, deviceScaleFactor=scale, mobile=False
        )

    async def picture(self, *, whole: bool = True, kind: str = "png", **options: Any) -> bytes:
        """Return a screenshot, of the whole page or of what is in view."""
        told = await self.call("Page.captureScreenshot", format=kind, captureBeyondViewport=whole, **options)
        return base64.b64decode(told["data"])

    async def close(self) -> None:
        await self._socket.close()
        await self._reader


def browse(folder: Path, visit: Callable[[Page], Awaitable[None]]) -> None:
    """Run a visit of a fresh page, of a fresh browser whose profile is in a folder."""
    with _browser(folder) as port:
        asyncio.run(_visit(port, visit))


@contextmanager
def _browser(folder: Path) -> Iterator[int]:
    """A browser; gives the port by which it is driven."""
    flags = ["--headless", "--no-sandbox", "--disable-gpu", "--disable-dev-shm-usage", "--remote-debugging-port=0"]
    quiet = ["--no-first-run", "--disable-background-networking", "--disable-component-update", "--hide-scrollbars"]
    argv = [find_browser(), *flags, *quiet, f"--user-data-dir={folder}", "about:blank"]
    with (folder / "browser.log").open("wb") as log, _started(argv, log) as process:
        try:
            yield wait_for(lambda: _port(folder, process), "the browser")
        finally:
            os.killpg(process.pid, signal.SIGKILL)  # it is a script in some distributions, and has children anyway


def _started(argv: list[str], log: IO[bytes]) -> subprocess.Popen[bytes]:
    return subprocess.Popen(argv, stdout=log, stderr=log, start_new_session=True)


def _port(folder: Path, process: subprocess.Popen[bytes]) -> int | None:
    assert process.poll() is None, (folder / "browser.log").read_text()
    told = folder / "DevToolsActivePort"
    lines = told.read_text().split("\n") if told.exists() else []
    return int(lines[0]) if len(lines) > 1 else None


async def _visit(port: int, visit: Callable[[Page], Awaitable[None]]) -> None:
    async with aiohttp.ClientSession() as http:
        pages: list[dict[str, str]] = []
        async with asyncio.timeout(DEADLINE):
            while not pages:  # the browser listens before it has opened the first
                async with http.get(f"http://127.0.0.1:{port}/json/list") as answer:
                    pages = [target for target in await answer.json() if target["type"] == "page"]
        async with http.ws_connect(pages[0]["webSocketDebuggerUrl"], max_msg_size=0) as socket:
            page = Page(socket)
            for domain in ("Page", "Runtime", "Log", "Network", "Accessibility"):
                await page.call(f"{domain}.enable")
            await visit(page)
            await page.close()
