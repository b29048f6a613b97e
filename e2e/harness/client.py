"""Runs inside the cluster, in a pod: clients of an OpenAI API that hold sessions of several turns.

Its own program, with aiohttp and nothing of the project: what a client of anybody's would do. It reads the variable
PLAN (JSON, see `harness.clients.Plan`) and writes a line of JSON for each request that ended. Requests carry no session
header, and each has a connection of its own, so that a Service may give it to any router.
"""

import asyncio
import itertools
import json
import os
import random
import socket
import sys
import time
from collections.abc import Iterator
from urllib.parse import urlsplit

import aiohttp
from aiohttp.abc import AbstractResolver, ResolveResult

RESOLVE_SECONDS = 60
"""Longest wait for a name's address."""
RESOLVE_PAUSE = 0.5
"""Seconds between two tries."""
REQUEST_SECONDS = 120
"""A request without an end after this counts as failed."""
SENTENCES = 8
"""Makes more than 256 bytes, which is what a router takes for the start of a conversation."""
TOPICS = ("the budget", "a broken pump", "the harbour", "an index", "the timetable", "a letter", "the migration")


class CutError(Exception):
    """The answer is not whole."""


def message(plan: dict, session: int, turn: int) -> str:
    """What the user says: the same in every run of the same plan; a session's first words are its own."""
    draw = random.Random(f"{plan['seed']}/{session}/{turn}")
    opening = f"This is about case {plan['seed']}-{session}. " if turn == 0 else ""
    return opening + " ".join(
        f"Tell me about {draw.choice(TOPICS)} in year {draw.randint(0, 999)}." for _ in range(SENTENCES)
    )


async def ask(http: aiohttp.ClientSession, url: str, body: dict, result: dict) -> str:
    """Send one request; returns the answer's text, and says in `result` what became of it."""
    async with http.post(f"{url}/v1/chat/completions", json=body) as response:
        result["status"] = response.status
        result["served"] = response.headers.get("x-promptgroup-served-by", "")
        if response.status != 200:
            await response.read()
            raise CutError(f"status {response.status}")
        return await (stream(response, result) if body["stream"] else whole(response, result))


async def whole(response: aiohttp.ClientResponse, result: dict) -> str:
    """A whole answer."""
    answer = await response.json()
    account(answer["usage"], result)
    return answer["choices"][0]["message"]["content"]


async def stream(response: aiohttp.ClientResponse, result: dict) -> str:
    """A streamed answer; only `[DONE]` makes it whole."""
    pieces, done = [], False
    async for line in response.content:
        data = line.removeprefix(b"data: ").strip()
        if data == b"[DONE]":
            done = True
        elif line.startswith(b"data: "):
            event = json.loads(data)
            if event.get("usage"):
                account(event["usage"], result)
            pieces += [choice["delta"].get("content") or "" for choice in event["choices"]]
    if not done:
        raise CutError("a stream without an end")
    return "".join(pieces)


def account(usage: dict, result: dict) -> None:
    """The engine's own count of this request."""
    result["prompt"] = usage["prompt_tokens"]
    result["cached"] = (usage.get("prompt_tokens_details") or {}).get("cached_tokens", 0)


class Addresses(AbstractResolver):
    """Resolves a name once, and tries until it can.

    A DNS server that starts anew beside another test answers that names do not exist until it has listed the Services.
    """

    def __init__(self, resolver: AbstractResolver) -> None:
        self._resolver = resolver
        self._kept: dict[tuple[str, int], list[ResolveResult]] = {}

    async def resolve(
        self, host: str, port: int = 0, family: socket.AddressFamily = socket.AF_INET
    ) -> list[ResolveResult]:
        """Addresses of a host; TimeoutError when it has none for RESOLVE_SECONDS."""
        async with asyncio.timeout(RESOLVE_SECONDS):
            while (host, port) not in self._kept:
                try:
                    self._kept[host, port] = await self._resolver.resolve(host, port, family)
                except OSError as error:
                    sys.stderr.write(f"{host}: {error}\n")
                    await asyncio.sleep(RESOLVE_PAUSE)
        return self._kept[host, port]

    async def close(self) -> None:
        """Close the resolver that was asked."""
        await self._resolver.close()


class Pace:
    """When each request is due: at a steady rate, however long those before it take, or at once."""

    def __init__(self, rate: float) -> None:
        self._rate = rate
        self._began = time.monotonic()
        self._count = itertools.count()

    async def turn(self) -> float:
        """Wait for the turn of the next request, and return when it was due: time that it is late is its own."""
        due = self._began + next(self._count) / self._rate if self._rate else time.monotonic()
        await asyncio.sleep(max(0.0, due - time.monotonic()))
        return due


async def converse(http: aiohttp.ClientSession, plan: dict, session: int, numbers: Iterator[int], pace: Pace) -> None:
    """One session, from the plan's first turn to its last; turns before the first are made up."""
    top = f"This is session {session}.\n" if plan["dated"] else ""
    messages = [{"role": "system", "content": top + plan["system"]}] if plan["system"] else []
    for turn in range(plan["last"]):
        messages.append({"role": "user", "content": message(plan, session, turn)})
        if turn < plan["first"]:
            messages.append({"role": "assistant", "content": "So it was."})
            continue
        streamed = session % 2 == 0 if plan["streamed"] is None else plan["streamed"]
        result = {"session": session, "turn": turn, "streamed": streamed, "status": 0, "served": "", "error": ""}
        # as many tokens as the plan says: how long an answer runs is what some tests are about
        length = {"max_tokens": plan["tokens"], "ignore_eos": True}
        body = {"model": plan["model"], "messages": messages, "stream": streamed, **length}
        if streamed:
            body["stream_options"] = {"include_usage": True}
        began, answer = await pace.turn(), ""
        try:
            answer = await ask(http, plan["urls"][next(numbers) % len(plan["urls"])], body, result)
        except (CutError, aiohttp.ClientError, TimeoutError, ConnectionError, ValueError, KeyError) as error:
            result["error"] = str(error) if isinstance(error, CutError) else f"{type(error).__name__} {error}"[:200]
        result["seconds"] = round(time.monotonic() - began, 3)
        sys.stdout.write(json.dumps(result) + "\n")
        sys.stdout.flush()
        await asyncio.sleep(plan["pause"])
        if result["error"]:
            return
        messages.append({"role": "assistant", "content": answer})


async def main() -> None:
    """So many sessions at a time, until there are no more."""
    plan = json.loads(os.environ["PLAN"])
    sessions = iter(range(plan["sessions"])) if plan["sessions"] else itertools.count()
    numbers, pace = itertools.count(), Pace(plan["rate"])
    timeout = aiohttp.ClientTimeout(total=REQUEST_SECONDS, sock_connect=10)
    addresses = Addresses(aiohttp.ThreadedResolver())
    for url in plan["urls"]:
        await addresses.resolve(urlsplit(url).hostname, urlsplit(url).port or 80)
    connector = aiohttp.TCPConnector(limit=0, force_close=True, resolver=addresses, use_dns_cache=False)

    async def work() -> None:
        for session in sessions:
            await converse(http, plan, session, numbers, pace)

    async with aiohttp.ClientSession(timeout=timeout, connector=connector) as http, asyncio.TaskGroup() as tasks:
        for _ in range(plan["at_once"]):
            tasks.create_task(work())


if __name__ == "__main__":
    asyncio.run(main())
