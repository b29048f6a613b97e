"""A router that keeps answers, and engines whose answers differ by request and by number."""

import asyncio
import itertools

import orjson

from promptgroup_contract.access import Access
from promptgroup_contract.caller_rules import NO_RULES, CallerRules
from promptgroup_contract.table import CacheScope, Engine, ResponseCaching, RoutingTable
from support.fakeengine import Call
from support.tables import SYSTEM, group, revision, slot, table
from support.wire import chat

CACHING = ResponseCaching(ttl=3600, max_bytes=2**22)


def keeping(
    *addresses: str,
    system: str = SYSTEM,
    version: str = "v1",
    settings: str = "e1",
    access: Access | None = None,
    callers: CallerRules = NO_RULES,
    **fields,
) -> RoutingTable:
    """One group that keeps answers, whose slots are at these addresses."""
    caching = ResponseCaching(**{"ttl": 3600, "max_bytes": 2**22, "scope": CacheScope.GROUP} | fields)
    slots = tuple(slot(index, address=address) for index, address in enumerate(addresses))
    of = revision(system, slots, engine=Engine(settings))
    return table(group("support", of, responses=caching, access=access, callers=callers), version=version)


def exact(user: str = "Hi", **fields: object) -> dict:
    """A request that has one answer."""
    return chat(user, **({"temperature": 0} | fields))


class Oracle:
    """What an engine says: the last message, the number of the inference, and counts of tokens."""

    def __init__(self) -> None:
        self._numbers = itertools.count(1)
        self.inferences = 0
        self.gate = asyncio.Event()
        """Answers go on beyond their first event once it is set."""
        self.gate.set()

    async def __call__(self, call: Call) -> None:
        self.inferences += 1
        number, asked = next(self._numbers), call.json
        said = f"{asked['messages'][-1]['content']} #{number}"
        id_ = f"chatcmpl-engine-{number:08x}"
        usage = {"prompt_tokens": 40, "completion_tokens": 3, "prompt_tokens_details": {"cached_tokens": 32}}
        if not asked.get("stream"):
            await self.gate.wait()
            choice = {"index": 0, "message": {"role": "assistant", "content": said}, "finish_reason": "stop"}
            call.answer(orjson.dumps({"id": id_, "object": "chat.completion", "choices": [choice], "usage": usage}))
            return
        call.begin_stream()
        words = said.split(" ")
        for index, word in enumerate(words):
            if index == 1:
                await call.writer.drain()
                await self.gate.wait()
            call.chunk(event({"id": id_, "choices": [{"index": 0, "delta": {"content": word}, "finish_reason": None}]}))
        end = {"id": id_, "choices": [{"index": 0, "delta": {}, "finish_reason": "stop"}]}
        call.chunk(event(end))
        call.chunk(event({"id": id_, "choices": [], "usage": usage}))
        call.chunk(b"data: [DONE]\n\n")
        call.send(b"0\r\n\r\n")


def event(doc: dict) -> bytes:
    return b"data: %b\n\n" % orjson.dumps(doc)


def said(body: bytes) -> str:
    """The text of an answer, streamed or not."""
    if not body.startswith(b"data:"):
        return orjson.loads(body)["choices"][0]["message"]["content"]
    docs = [orjson.loads(each[6:]) for each in body.split(b"\n\n") if each.startswith(b"data: {")]
    return " ".join(choice["delta"].get("content", "") for doc in docs for choice in doc["choices"]).strip()
