"""Compares a prompt with an earlier one of its conversation: the first change, and the bytes of the prefix lost by it.

Clients request this (`features.cache_diagnosis`); nothing is stored of other requests. Of a prompt only hashes are
stored: of its model, tools, system text, and of its messages, each with all before it. The record is bounded.
"""

from collections import OrderedDict
from collections.abc import Mapping
from typing import Any, NamedTuple

import orjson
import xxhash

from promptgroup_router.apis.request import SYSTEM_ROLES, ApiKind, ParsedRequest

REMEMBERED = 10_000
"""Most prompts whose digests are stored: enough for some minutes of agents that request diagnoses."""
MOST_MESSAGES = 2048
"""Most messages of a prompt that are compared."""
REMEMBERED_MESSAGES = 500_000
"""Most messages in all stored digests: some 50 MB."""
MARKERS = frozenset(("cache_control", "prompt_cache_breakpoint"))
"""Fields of messages and their parts that change from turn to turn and are no part of the prompt."""


class PromptDigest(NamedTuple):
    """The hashes of a prompt, in the order in which engines read it."""

    model: int
    tools: int
    system: int
    messages: tuple[int, ...]
    """Hashes of each message and all before it."""
    sizes: tuple[int, ...]
    """Bytes up to tools, up to the system text, and up to each message."""


class PromptChange(NamedTuple):
    """The first difference between two prompts."""

    what: str
    """`model`, `tools`, `system` or `messages`."""
    message: int | None
    """Index of the first message that differs; None for the others."""
    lost: int
    """Bytes of the earlier prompt behind the difference."""
    same: int
    """Bytes before it."""


class CacheQuestion(NamedTuple):
    """A client's request for a cache diagnosis since an earlier answer."""

    previous: str
    """Id of that answer; empty for a client that requests to have this prompt stored for a later diagnosis."""
    digest: PromptDigest
    form: ApiKind | None
    """API whose field reports the diagnosis; None for the header alone."""


def digest(request: ParsedRequest) -> PromptDigest:
    """Return the digest of a request's prompt."""
    if request.compared is not None:
        model, tools, system, messages, lengths = request.compared
        return PromptDigest(model, tools, system, tuple(messages), tuple(lengths))
    items = _messages(request)
    if items and items[0].get("role") in SYSTEM_ROLES:
        items = items[1:]
    size = len(request.tools.encode())
    sizes = [size, size := size + len(request.system.encode())]
    chain, hashes = xxhash.xxh3_64(), []
    for item in items[:MOST_MESSAGES]:
        text = orjson.dumps(_without_markers(item), option=orjson.OPT_SORT_KEYS)
        chain.update(text)
        size += len(text)
        hashes.append(chain.intdigest())
        sizes.append(size)
    return PromptDigest(_hash(request.model), _hash(request.tools), _hash(request.system), tuple(hashes), tuple(sizes))


def first_change(before: PromptDigest, now: PromptDigest) -> PromptChange | None:
    """Return what differs first; None if the prompt begins as the earlier one did."""
    whole = before.sizes[-1]
    if before.model != now.model:
        return PromptChange("model", None, whole, 0)
    if before.tools != now.tools:
        return PromptChange("tools", None, whole, 0)
    if before.system != now.system:
        return PromptChange("system", None, whole - before.sizes[0], before.sizes[0])
    for index, (one, start) in enumerate(zip(before.messages, before.sizes[1:], strict=False)):
        if index >= len(now.messages) or now.messages[index] != one:
            return PromptChange("messages", index, whole - start, start)
    return None


class PromptDigests:
    """The digests of prompts by the id of their answer, the oldest first."""

    def __init__(self, limit: int = REMEMBERED, most_messages: int = REMEMBERED_MESSAGES) -> None:
        self._limit = limit
        self._most_messages = most_messages
        self._messages = 0
        """Messages of all of them."""
        self._digests: OrderedDict[int, PromptDigest] = OrderedDict()

    def get(self, of: str, answer: str) -> PromptDigest | None:
        """Return the digest of the prompt of an answer; None if it is not stored, or is another caller's."""
        return self._digests.get(_key(of, answer))

    def put(self, of: str, answer: str, prompt_digest: PromptDigest) -> None:
        """Store the digest of the prompt of an answer that was sent to `of`."""
        key = _key(of, answer)
        replaced = self._digests.pop(key, None)
        self._messages += len(prompt_digest.messages) - (len(replaced.messages) if replaced is not None else 0)
        self._digests[key] = prompt_digest
        while len(self._digests) > self._limit or self._messages > self._most_messages:
            _, oldest = self._digests.popitem(last=False)
            self._messages -= len(oldest.messages)


def _key(of: str, answer: str) -> int:
    return _hash(f"{of}\0{answer}")


def _hash(text: str) -> int:
    return xxhash.xxh3_64_intdigest(text.encode(errors="surrogatepass"))


def _messages(request: ParsedRequest) -> list[Mapping[str, Any]]:
    given = request.doc.get("input") if request.kind is ApiKind.RESPONSES else None
    listed = given if isinstance(given, list) else request.messages
    return [item for item in listed if isinstance(item, dict)]


def _without_markers(item: Mapping[str, Any]) -> dict[str, Any]:
    content = item.get("content")
    result = {name: value for name, value in item.items() if name not in MARKERS}
    if isinstance(content, list):
        result["content"] = [
            {name: value for name, value in part.items() if name not in MARKERS} if isinstance(part, dict) else part
            for part in content
        ]
    return result
