"""Tells a client that asks why its prompt was not found in cache, in the words of the hosted APIs.

| asked by                                            | answered in                                            |
|-----------------------------------------------------|--------------------------------------------------------|
| Anthropic's `diagnostics.previous_message_id`       | `diagnostics.cache_miss_reason` of the message         |
| OpenAI's `prompt_cache_options.comparison_response_id` | `prompt_cache_diagnostics` of the response          |
| the header `x-promptgroup-diagnostics`              | the header `x-promptgroup-cache-miss`, as all of them  |

Engines need not know of it: the router compares the prompt with the one of the answer that the client names, and knows
which replica holds the session. An answer is kept from nobody but those who are not told what was cached
(`cachedTokens`).
"""

import re
from copy import copy
from typing import Any, NamedTuple

import orjson

from promptgroup_contract import names
from promptgroup_contract.caller_rules import CachedTokens
from promptgroup_router.apis.request import ApiKind, ParsedRequest, encoded, wrong
from promptgroup_router.callers.whole_events import WholeEvents
from promptgroup_router.documents.members import NOWHERE, MemberReader
from promptgroup_router.policy.balancer import Pick
from promptgroup_router.policy.misses import expect_miss
from promptgroup_router.routing.points import Answering, RequestFeature
from promptgroup_router.routing.prompt_digest import CacheQuestion, PromptDigests, digest, first_change
from promptgroup_router.routing.route import Route

OK = 200
HEADER = names.HEADER_DIAGNOSTICS.encode()
CACHE_MISS = names.HEADER_CACHE_MISS.encode()
ANTHROPIC, PREVIOUS = "diagnostics", "previous_message_id"
OPENAI, OPENAI_ID = "prompt_cache_options", "comparison_response_id"
MOST_ID = 256
"""Most characters of an answer's id."""
NOT_FOUND, UNAVAILABLE, NONE = "previous_message_not_found", "unavailable", "none"
HEAD = 4096
"""Bytes of an answer in which its id and its beginning are looked for."""

_ID = re.compile(rb'"([A-Za-z0-9_.:-]{1,256})"')
_PLACES = {ApiKind.MESSAGES: b"message", ApiKind.RESPONSES: b"response"}
"""The member of an event that has the answer."""
_HOLDERS = (b"", *_PLACES.values())
"""The members that have its id, empty for the event or the answer itself."""
_OBJECT = re.compile(rb'\{(?=\s*")')
"""The beginning of an object that has members."""
_DATA = b"data:"


def asks(request: ParsedRequest, *, by_header: bool) -> bool:
    """Return True if a request asks something; `by_header` is whether it has HEADER."""
    if request.kind is ApiKind.MESSAGES and request.doc.get(ANTHROPIC) is not None:
        return True
    options = request.doc.get(OPENAI) if request.kind is ApiKind.RESPONSES else None
    if isinstance(options, dict) and OPENAI_ID in options:
        return True
    return by_header and request.kind in (ApiKind.CHAT, ApiKind.MESSAGES, ApiKind.RESPONSES)


def question(request: ParsedRequest, headers: dict[bytes, bytes]) -> CacheQuestion | None:
    """Return what a request asks; None for nearly all requests, which ask nothing.

    Raises:
        ApiError: 400: the field of the API has another form.
    """
    given = headers.get(HEADER)
    if not asks(request, by_header=given is not None):
        return None
    if request.kind is ApiKind.MESSAGES and request.doc.get(ANTHROPIC) is not None:
        requested = request.doc[ANTHROPIC]
        previous = requested.get(PREVIOUS) if isinstance(requested, dict) else requested
        if not isinstance(requested, dict) or not _is_id(previous):
            raise wrong("diagnostics", "diagnostics", requested, "an object with previous_message_id, an id or null")
        return _question(previous, request, ApiKind.MESSAGES)
    options = request.doc.get(OPENAI) if request.kind is ApiKind.RESPONSES else None
    if isinstance(options, dict) and OPENAI_ID in options:
        if not _is_id(options[OPENAI_ID]):
            raise wrong(f"{OPENAI}.{OPENAI_ID}", OPENAI, options[OPENAI_ID], "the id of a response, or null")
        return _question(options[OPENAI_ID], request, ApiKind.RESPONSES)
    return _question((given or b"").decode("latin-1")[:MOST_ID].strip(), request, None)


def without_question(request: ParsedRequest) -> ParsedRequest:
    """Return the request for an engine that never heard of the question."""
    if request.kind is not ApiKind.MESSAGES or request.doc.get(ANTHROPIC) is None:
        return request
    doc = {name: value for name, value in request.doc.items() if name != ANTHROPIC}
    sent = copy(request)
    sent.doc, sent.raw = doc, encoded(doc) if request.raw else b""
    return sent


def _question(previous: str | None, request: ParsedRequest, form: ApiKind | None) -> CacheQuestion:
    return CacheQuestion(previous or "", digest(request), form)


def _is_id(value: object) -> bool:
    return value is None or (isinstance(value, str) and len(value) <= MOST_ID)


class MissDiagnosis(NamedTuple):
    """The reason why a prompt is not in cache, or `none`."""

    reason: str
    tokens: int = 0
    """Tokens of the earlier prompt that are lost by it, an estimate."""
    reusable: int = 0
    """Tokens of it that may still be found."""
    message: int | None = None
    """Index of the first message that changed, the system message not counted."""

    def header(self) -> bytes:
        """Return the value of the answer's header."""
        at = f";message={self.message}" if self.message is not None else ""
        return (f"{self.reason};tokens={self.tokens}{at}" if self.reason != NONE else NONE).encode()

    def field(self, form: ApiKind) -> bytes:
        """Return the member of the API's object, without a comma."""
        if form is ApiKind.MESSAGES:
            result: dict[str, Any] | None = None
            if self.reason != NONE:
                is_known = self.reason == NOT_FOUND or self.reason.endswith("_changed")
                result = {"type": self.reason if is_known else UNAVAILABLE}
                result |= {"cache_missed_input_tokens": self.tokens} if self.tokens else {}
            return b'"diagnostics":' + orjson.dumps({"cache_miss_reason": result})
        return b'"prompt_cache_diagnostics":' + orjson.dumps(self._openai())

    def _openai(self) -> dict[str, Any]:
        if self.reason == NONE:
            return {"type": "cache_hit"}
        if self.reason == NOT_FOUND:
            return {"type": "comparison_response_not_found"}
        if not self.reason.endswith("_changed"):
            return {"type": UNAVAILABLE}
        # the system text is a part of what OpenAI calls the input
        reason = self.reason if self.reason in ("model_changed", "tools_changed") else "input_changed"
        return {
            "type": "cache_miss",
            "reason": reason,
            "cache_missed_tokens": self.tokens,
            "comparison_reusable_tokens": self.reusable,
        }


class CacheDiagnosis(RequestFeature):
    """The question of a request's client about the cache, and its answer."""

    __slots__ = ("_exact", "_known", "_owner", "_question", "_tokens_a_byte")

    def __init__(self, known: PromptDigests, route: Route, asked: CacheQuestion, text: int) -> None:
        """Keep the question.

        Args:
            known: the prompts of earlier answers.
            route: where the request goes.
            asked: the question.
            text: length of the prompt, in bytes.
        """
        self._known = known
        self._question = asked
        self._tokens_a_byte = route.demand.prompt / max(1, text)
        self._owner = f"{route.group}\0{route.caller.name}\0{route.rewrite.domain.salt}"
        """Names whoever may ask about the answer: the caller, within the group and its part of the cache."""
        self._exact = route.candidates.rules.cached_tokens is CachedTokens.EXACT
        """False where clients may not know what was cached."""

    def answering(self, answer: Answering) -> None:
        """Tell the diagnosis in a header field, and in the body of an answer that can be read."""
        if not self._exact:
            return
        diagnosis = self.diagnose(answer.pick)
        answer.fields.append((CACHE_MISS, diagnosis.header()))
        if answer.status == OK and not answer.compressed:
            answer.rewrite(Diagnosed(self._known, self._owner, self._question, diagnosis, streamed=answer.streamed))

    def diagnose(self, pick: Pick | None) -> MissDiagnosis:
        """Return why the prompt is not in the cache of the replica that has the request."""
        cache_question = self._question
        if cache_question.previous:
            before = self._known.get(self._owner, cache_question.previous)
            if before is None:
                return MissDiagnosis(NOT_FOUND)
            change = first_change(before, cache_question.digest)
            if change is not None:
                rate = self._tokens_a_byte
                return MissDiagnosis(
                    f"{change.what}_changed", round(change.lost * rate), round(change.kept * rate), change.message
                )
        missed = expect_miss(pick) if pick is not None else None
        return MissDiagnosis(missed.cause, round(missed.tokens)) if missed is not None else MissDiagnosis(NONE)


class Diagnosed:
    """Puts a diagnosis into an answer on its way, and remembers the prompt by the answer's id."""

    def __init__(
        self, known: PromptDigests, owner: str, asked: CacheQuestion, diagnosis: MissDiagnosis, *, streamed: bool
    ) -> None:
        self._known = known
        self._owner = owner
        self._asked = asked
        form = asked.form
        self._place = (_PLACES[form] if streamed else b"") if form is not None else None
        """The member of an event whose field it is, or empty; None once it is there, and where the header has all."""
        self._field = diagnosis.field(form) + b"," if form is not None else b""
        self._streamed = streamed
        self._often = form is ApiKind.RESPONSES
        """True if several events have the object."""
        self._head: bytes | None = b""
        """The beginning of the answer, until it has the id."""
        self._held = b""
        self._events = WholeEvents() if streamed else None

    def feed(self, data: bytes) -> bytes:
        """Return a part of the body with the field in its place; an event, or what may be the place, is kept back."""
        if self._head is not None:
            self._head = self._remember(self._head + data)
        if self._place is None:
            return data
        if self._events is not None:
            return self._filled(self._events.feed(data))
        whole, self._held = self._held + data, b""
        if _OBJECT.search(whole) is None and len(whole) <= HEAD:
            whole, self._held = b"", whole
        return self._filled(whole)

    def finish(self) -> bytes:
        """Return what is left of the body."""
        held, self._held = self._held, b""
        return self._filled(held if self._events is None else self._events.finish())

    def _filled(self, data: bytes) -> bytes:
        if self._place is None or not data:
            return data
        if not self._streamed:
            self._place = None
            filled, self._held = self._filled_at(data, 0) + self._held, b""
            return filled
        lines = data.splitlines(keepends=True)
        for number, line in enumerate(lines):
            if self._place is None or not line.startswith(_DATA) or b'"%b"' % self._place not in line:
                continue
            reader = MemberReader(self._place, most=0)
            reader.feed(line[len(_DATA) :])
            if reader.begin == NOWHERE:
                continue
            lines[number] = self._filled_at(line, reader.begin + len(_DATA))
            if lines[number] is not line and not self._often:
                self._place = None
        filled = b"".join(lines)
        return filled + self._events.finish() if self._place is None and self._events is not None else filled

    def _filled_at(self, data: bytes, at: int) -> bytes:
        """Return data with the field as the first member of the object that begins at a place."""
        search = _OBJECT.search(data, at) if not self._streamed else _OBJECT.match(data, at)
        return data[: search.end()] + self._field + data[search.end() :] if search is not None else data

    def _remember(self, head: bytes) -> bytes | None:
        """Remember the prompt by the id in the beginning of its answer; return None once nothing is looked for."""
        if answer_id := _id_of(head, streamed=self._streamed):
            self._known.put(self._owner, answer_id, self._asked.digest)
            return None
        return head if len(head) < HEAD else None


def _id_of(head: bytes, *, streamed: bool) -> str:
    """Return the id of an answer that begins like this; empty while it is not known."""
    events = [line[len(_DATA) :] for line in head.split(b"\n") if line.startswith(_DATA)] if streamed else [head]
    for event in events:
        for holder in _HOLDERS:
            reader = MemberReader(b"id", holder)
            reader.feed(event)
            if (result := _ID.fullmatch(reader.value)) is not None:
                return result[1].decode()
    return ""
