"""The events of one stream in transit: their tokens are stored, and the rest is sent as if the first engine continued.

Only complete events arrive here. Data that the client did not request is removed: the ids of tokens are null, as they
are for clients that do not request them. Events of the rest come from a text completion. They get the id, the time and
the model of the first ones, the form of the client's API, and a usage of the client's own prompt and all tokens.
"""

import re
from typing import Any

import orjson

from promptgroup_router.apis.request import ApiKind
from promptgroup_router.apis.usage import OuterTail, Tail, Usage, count
from promptgroup_router.features.resumed_stream.kept_tokens import KeptTokens

_IDS = re.compile(rb'"((?:prompt_)?token_ids)": ?\[[0-9, ]*\]')
_NAME = b"token_ids"
_DATA, _DONE = b"data:", b"[DONE]"
_SHARED = ("id", "created", "model", "system_fingerprint")
"""Members that are equal in all events of one stream."""
_EVENT = re.compile(rb".*?\n\r?\n\r?", re.DOTALL)
_PLAIN = ("role", "content")
"""Members of a message's delta that contain nothing but text."""


class StreamText:
    """The events of one stream."""

    __slots__ = ("_chat", "_first", "_others", "_shows_ids", "tokens", "whole")

    def __init__(self, kind: ApiKind, *, shows_ids: bool) -> None:
        """Begin.

        Args:
            kind: the API: a chat or a text completion.
            shows_ids: whether the client requested the ids of tokens.
        """
        self.tokens = KeptTokens()
        self.whole = True
        """True if the data so far ends with a complete event."""
        self._chat = kind is ApiKind.CHAT
        self._shows_ids = shows_ids
        self._first: dict[str, Any] = {}
        """The members that are equal in all events."""
        self._others = -1
        """Number of tokens that earlier engines generated; -1 while the first one answers."""

    @property
    def goes_on(self) -> bool:
        """True once the rest has begun."""
        return self._others >= 0

    def go_on(self) -> None:
        """Expect the rest from another engine."""
        self.tokens.go_on()
        self._others = self.tokens.passed_on

    def feed(self, content: bytes) -> bytes:
        """Return complete events as the client gets them."""
        if not content:
            return content
        self.whole = content.endswith((b"\n\n", b"\n\r\n"))
        if not self.whole:  # an event that exceeds the buffer
            self.tokens.give_up()
        if self.goes_on:
            return b"".join([self._rest(event) for event in _events(content)])
        for event in _events(content):
            self._keep(_document(event))
        return content if self._shows_ids or _NAME not in content else _IDS.sub(rb'"\1":null', content)

    def finish(self) -> bytes:
        """Return nothing: no event is held."""
        return b""

    def usage(self, result: Usage | None) -> Usage | None:
        """Return the usage of the whole answer, given the usage that the last engine reports."""
        if result is None or not self.goes_on:
            return result
        prompt = self.tokens.prompt
        cached = min(result.cached_tokens, prompt) if result.cached_tokens is not None else None
        return Usage(prompt, cached, self._others + result.completion_tokens)

    def _keep(self, document: dict[str, Any]) -> None:
        choices = document.get("choices")
        if not isinstance(choices, list) or not choices:
            return
        choice = choices[0]
        if len(choices) > 1 or not isinstance(choice, dict):
            self.tokens.give_up()
            return
        if not self._first:
            self._first = {name: document[name] for name in _SHARED if name in document}
        tokens = self.tokens
        if (prompt := document.get("prompt_token_ids") or choice.get("prompt_token_ids")) is not None:
            tokens.begin(prompt)
        tokens.add(choice.get("token_ids") or [], self._text(choice))
        if choice.get("finish_reason") is not None:
            tokens.finished = True

    def _text(self, choice: dict[str, Any]) -> Any:
        """Return the text of a choice; None if it has other content, too."""
        delta = choice.get("delta")
        if not isinstance(delta, dict):
            return choice.get("text") or ""
        if any(value for name, value in delta.items() if name not in _PLAIN):
            return None
        return delta.get("content") or ""

    def _rest(self, event: bytes) -> bytes:
        document = _document(event)
        choices = document.get("choices")
        if not isinstance(choices, list):
            return event
        self._keep(document)
        document.pop("prompt_token_ids", None)
        result = document | self._first
        if self._chat:
            result["object"] = "chat.completion.chunk"
        result["choices"] = [self._choice(choice) for choice in choices if isinstance(choice, dict)]
        if isinstance(usage := document.get("usage"), dict):
            result["usage"] = self._usage(usage)
        return b"data: " + orjson.dumps(result) + b"\n\n"

    def _choice(self, choice: dict[str, Any]) -> dict[str, Any]:
        result = {name: value for name, value in choice.items() if name != "prompt_token_ids"}
        if not self._shows_ids and "token_ids" in result:
            result["token_ids"] = None
        if self._chat:
            result["delta"] = {"content": result.pop("text", "")}
        return result

    def _usage(self, usage: dict[str, Any]) -> dict[str, Any]:
        prompt, answer = self.tokens.prompt, self._others + (count(usage.get("completion_tokens")) or 0)
        result = usage | {"prompt_tokens": prompt, "completion_tokens": answer, "total_tokens": prompt + answer}
        details = usage.get("prompt_tokens_details")
        if isinstance(details, dict) and (cached := count(details.get("cached_tokens"))) is not None:
            result["prompt_tokens_details"] = details | {"cached_tokens": min(cached, prompt)}
        return result


class WholeUsage(OuterTail):
    """The token counts of an answer that another engine may continue."""

    __slots__ = ("_text",)

    def __init__(self, tail: Tail, text: StreamText) -> None:
        """Begin.

        Args:
            tail: of the first engine's answer.
            text: the events of the stream.
        """
        super().__init__(tail)
        self._text = text

    def go_on(self) -> None:
        """Expect the rest from another engine."""
        self._tail = Tail()

    def usage(self) -> Usage | None:
        """Return the usage of the whole answer; None if there is none."""
        return self._text.usage(self._tail.usage())


def _events(content: bytes) -> list[bytes]:
    """Return events with the blank lines that end them, and the bytes after the last one."""
    if content.count(b"\n\n") == 1 and content.endswith(b"\n\n"):
        return [content]
    events = _EVENT.findall(content)
    rest = content[sum(map(len, events)) :]
    return [*events, rest] if rest else events


def _document(event: bytes) -> dict[str, Any]:
    """Return the object in an event's one line of data; empty if it has none."""
    data = event[len(_DATA) :].strip()
    if not event.startswith(_DATA) or data == _DONE:
        return {}
    try:
        document = orjson.loads(data)
    except orjson.JSONDecodeError:
        return {}
    return document if isinstance(document, dict) else {}
