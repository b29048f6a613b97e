"""Ways for a caller B to learn what a caller A has sent, through a whole router, to engines with a real prefix cache.

Each way asks for a text that A has sent, and in the same manner for one that nobody has. What B learns is the
difference: of cached tokens, of times, of what it is told.
"""

import asyncio
import contextlib
import math
import time
from collections.abc import AsyncIterator, Awaitable, Callable
from dataclasses import dataclass
from pathlib import Path

import uvloop

from promptgroup_contract.access import Caller
from promptgroup_contract.caller_rules import CallerRules
from promptgroup_contract.table import RoutingTable
from promptgroup_local.engine.flags import Knobs
from promptgroup_local.engine.scheduler import Cost
from promptgroup_operator.engines.dialects.dialect import Dialect
from promptgroup_operator.engines.dialects.vllm import VLLM
from promptgroup_router.server import Router
from support.fakeengine import until
from support.keys import BY_KEY, KEY_A, KEY_B, write_keys
from support.served import standing_in
from support.tables import SYSTEM, group, revision, slot, table
from support.wire import Answer, ask, post, routing

CHAT, TEXT, MESSAGES, RESPONSES = "/v1/chat/completions", "/v1/completions", "/v1/messages", "/v1/responses"
WORDS = 400
"""Words of a text, of some tokens each."""


def cached(answer: Answer) -> int:
    """The tokens that an answer says were cached; none where it is refused."""
    if answer.status >= 400:
        return 0
    if b"data: " in answer.body:
        lines = [line for line in answer.body.splitlines() if b'"cached_tokens"' in line]
        return max((int(line.split(b'"cached_tokens":')[1].split(b"}")[0].split(b",")[0]) for line in lines), default=0)
    usage = answer.json["usage"]
    details = usage.get("prompt_tokens_details") or usage.get("input_tokens_details") or {}
    return details.get("cached_tokens") or usage.get("cache_read_input_tokens") or 0


def within(test: Awaitable[None], seconds: float = 300.0) -> None:
    """Run a coroutine as the router runs; real engines on a CPU take their time."""

    async def limited() -> None:
        async with asyncio.timeout(seconds):
            await test

    uvloop.run(limited())


@dataclass
class World:
    router: Router
    words: int

    def said(self, secret: str) -> str:
        """A text that nobody else sends."""
        return f"{secret} " + " ".join(f"{secret}{number}" for number in range(self.words))

    def chat(self, secret: str, **fields: object) -> dict:
        messages = [{"role": "system", "content": SYSTEM}, {"role": "user", "content": self.said(secret)}]
        return {"model": "llama", "messages": messages, "max_tokens": 1, **fields}

    async def send(self, key: str, body: dict, *fields: str, path: str = CHAT) -> Answer:
        headers = ("Content-Type: application/json", f"Authorization: Bearer {key}", *fields)
        return await ask(self.router.port, post(body, *headers, path=path))

    async def as_b(self, body: dict, *fields: str, path: str = CHAT) -> int:
        return cached(await self.send(KEY_B, body, *fields, path=path))

    @property
    def salt_of_a(self) -> str:
        return self.router.state.features.salts.of("chat", Caller("team-a")).salt


@contextlib.asynccontextmanager
async def world(
    folder: Path,
    *,
    isolated: bool,
    dialect: Dialect = VLLM,
    time_scale: float = 0.0,
    engine: str = "",
    words: int = WORDS,
) -> AsyncIterator[World]:
    """Two callers, A and B, of one group. Its engine is a stand-in, or at an address."""
    write_keys(folder / "secrets", team_a=KEY_A, team_b=KEY_B)
    async with standing_in(1, Knobs(Cost(), time_scale=time_scale, startup=0.0), engine, dialect) as addresses:
        slots = (slot(0, address=addresses[0]),)
        rules = CallerRules(salted=dialect.salted if isolated else None)
        known: RoutingTable = table(group("support", revision(slots=slots), access=BY_KEY, callers=rules))
        async with routing(folder, known, secrets_dir=folder / "secrets") as router:
            await until(lambda: router.state.keys_tried, "the keys")
            yield World(router, words)


Way = Callable[[World, str], Awaitable[int]]
WAYS: dict[str, tuple[dict, str, Way]] = {}
"""Name → how A sends the text (fields, path), and how B asks for it."""


def way(name: str, path: str = CHAT, **fields: object) -> Callable[[Way], Way]:
    def add(probe: Way) -> Way:
        WAYS[name] = fields, path, probe
        return probe

    return add


def simply(name: str, *headers: str, sent: dict | None = None, **fields: object) -> None:
    async def probe(it: World, secret: str) -> int:
        given = {key: it.salt_of_a if value == "SALT" else value for key, value in fields.items()}
        return await it.as_b(it.chat(secret, **given), *headers)

    way(name, **(sent or {}))(probe)


simply("the same request")
simply("a salt of one's own", cache_salt="mine")
simply("the salt of A", cache_salt="SALT")
simply("the salt of A under SGLang's name", extra_key="SALT")
simply("the session of A by a header", "x-session-id: 7")
simply("the affinity of A", "x-session-affinity: 7", "x-smg-routing-key: 7")
simply("the conversation of A", sent={"conversation": "c-7"}, conversation="c-7")
simply("the session of A by a field", sent={"session_id": "7"}, session_id="7")
simply("the cache key of A", sent={"prompt_cache_key": "k"}, prompt_cache_key="k")
simply("the user of A", sent={"user": "u"}, user="u")
simply("a name of A in headers of gateways", "x-forwarded-user: team-a", "x-user: team-a", "x-api-key-name: team-a")
simply("the group named beside the prompt's model", "x-promptgroup-namespace: chat")
simply("transfer of A's blocks", kv_transfer_params={"do_remote_prefill": True, "remote_engine_id": "a"})
simply("plugins and priority", vllm_xargs={"salt": "x"}, priority=-100, nvext={"annotations": []}, rid="a")
simply("a stream", stream=True, stream_options={"include_usage": True})
simply("the id of A's request", sent={"request_id": "r-7"}, request_id="r-7")


@way("the group's name instead of its prompt")
async def _(it: World, secret: str) -> int:
    body = {"model": "support", "messages": [{"role": "user", "content": it.said(secret)}], "max_tokens": 1}
    return await it.as_b(body)


@way("guesses block by block")
async def _(it: World, secret: str) -> int:
    best = 0
    for share in (4, 2, 1):
        body = it.chat(secret)
        body["messages"][1]["content"] = it.said(secret)[: len(it.said(secret)) // share]
        best = max(best, await it.as_b(body) if share > 1 else best)
    return best


@way("Anthropic's API")
async def _(it: World, secret: str) -> int:
    messages = [{"role": "user", "content": it.said(secret)}]
    return await it.as_b({"model": "llama", "system": SYSTEM, "messages": messages, "max_tokens": 1}, path=MESSAGES)


@way("the Responses API")
async def _(it: World, secret: str) -> int:
    body = {"model": "llama", "instructions": SYSTEM, "input": it.said(secret), "max_output_tokens": 16}
    return await it.as_b(body, path=RESPONSES)


async def learned(it: World, name: str) -> int:
    """The tokens by which B can tell a text that A has sent from one that nobody has."""
    fields, path, probe = WAYS[name]
    number = list(WAYS).index(name)
    theirs, nobodys = f"yes{number}x", f"not{number}x"
    assert (await it.send(KEY_A, it.chat(theirs, **fields), "x-session-id: 7", path=path)).status == 200
    control = await probe(it, nobodys)
    return await probe(it, theirs) - control


async def all_learned(it: World) -> tuple[dict[str, int], int]:
    """The tokens that B learns by each way, and those that A finds of its own text afterwards."""
    # both have a warm beginning of their own, so that only the text makes a difference
    for key in (KEY_A, KEY_B):
        await it.send(key, it.chat("warm"))
    found = {name: await learned(it, name) for name in WAYS}
    return found, cached(await it.send(KEY_A, it.chat("yes0x"), "x-session-id: 7"))


async def timed_pairs(it: World, pairs: int) -> float:
    """The probability of B's times for texts that A has sent, and for others, if both were alike (sign test)."""

    async def timed(secret: str) -> float:
        began = time.perf_counter()
        assert (await it.send(KEY_B, it.chat(secret))).status == 200
        return time.perf_counter() - began

    found = []
    for number in range(pairs):
        await it.send(KEY_A, it.chat(f"yes{number}z"))
        names = [f"yes{number}z", f"not{number}z"]
        # neither kind always goes first
        times = {name: await timed(name) for name in (names if number % 2 == 0 else names[::-1])}
        found.append((times[names[0]], times[names[1]]))
    return sign_test(found)


def sign_test(pairs: list[tuple[float, float]]) -> float:
    """Probability of so many pairs whose first is less, or more, if both were alike (two-sided)."""
    less, many = sum(first < second for first, second in pairs), len(pairs)
    tail = sum(math.comb(many, each) for each in range(max(less, many - less), many + 1)) / 2**many
    return min(1.0, 2 * tail)
