"""Parsed requests and kept answers, for tests of the response cache."""

import orjson

from promptgroup_router.apis.endpoints import ENDPOINTS
from promptgroup_router.apis.request import ParsedRequest
from promptgroup_router.response_cache.answer import KeptAnswer
from promptgroup_router.response_cache.canonical import CacheKey, cache_key
from support.wire import chat

CHAT, TEXT, MESSAGES = b"/v1/chat/completions", b"/v1/completions", b"/v1/messages"
BORN = 1_700_000_000.0


def asked(body: dict | None = None, path: bytes = CHAT, **fields: object) -> ParsedRequest:
    doc = {"temperature": 0, **chat()} if body is None else body
    return ENDPOINTS[path].parse(orjson.dumps(doc | fields))


def key_of(ask: ParsedRequest, **changed: object) -> CacheKey:
    values = {
        "path": CHAT, "query": b"", "revision": "chat/support/" + "a" * 32, "settings": "e1", "model": "llama",
        "preamble": None, "allowed": frozenset(), "sharers": b"", "space": "",
    }  # fmt: skip
    return cache_key(ask, **(values | changed))


def answer(number: int = 0, size: int = 1000, **fields: object) -> KeptAnswer:
    """An answer that takes about so many bytes."""
    values = {
        "key": CacheKey(number.to_bytes(32, "big")), "group": "chat/support", "revision": "aaaaaaaa",
        "content_type": b"application/json", "pieces": (b"x" * (size - 448),), "id": b"chatcmpl-1",
        "born": BORN, "lifetime": 60.0,
    }  # fmt: skip
    return KeptAnswer(**(values | fields))
