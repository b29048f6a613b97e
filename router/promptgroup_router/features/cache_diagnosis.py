"""Tells a client that asks why its prompt was not found in cache, in the words of the hosted APIs.

| asked by                                            | answered in                                            |
|-----------------------------------------------------|--------------------------------------------------------|
| Anthropic's `diagnostics.previous_message_id`       | `diagnostics.cache_miss_reason` of the message         |
| OpenAI's `prompt_cache_options.comparison_response_id` | `prompt_cache_diagnostics` of the response          |
| the header `x-promptgroup-diagnostics`              | the header `x-promptgroup-cache-miss`, as all of them  |

Engines need not know of it: the router compares the prompt with the one of the answer that the client names, and knows
which replica holds the session. What follows from that is a forecast, and is called one; what is told once the engine
has reported its usage is held against that:

| answer               | forecast in                            | observed in                                         |
|----------------------|----------------------------------------|-----------------------------------------------------|
| whole                | header and field, if it tells no usage | header and field                                    |
| stream               | header                                 | a comment at the end, `: x-promptgroup-cache-miss:` |
| stream of messages   | the same, and `message_start`          | the same, and the `message_delta` with the usage    |
| stream of a response | the same, and events without usage     | the same, and the event with the usage              |

An answer is kept from nobody but those who are not told what was cached (`cachedTokens`).
"""

import re
from collections.abc import Callable
from copy import copy

from promptgroup_contract import names
from promptgroup_contract.caller_rules import CachedTokens
from promptgroup_router.apis.request import ApiKind, ParsedRequest, encoded, wrong
from promptgroup_router.apis.usage import MessagesTail, ResponsesTail, Tail, Usage
from promptgroup_router.base.metrics import Metrics
from promptgroup_router.callers.whole_events import WholeEvents
from promptgroup_router.documents.members import NOWHERE, MemberReader
from promptgroup_router.features.miss_diagnosis import NOT_FOUND, MissDiagnosis, expect, observe
from promptgroup_router.policy.balancer import Pick
from promptgroup_router.routing.points import Answering, RequestEnd, RequestFeature
from promptgroup_router.routing.prompt_digest import CacheQuestion, PromptChange, PromptDigests, digest, first_change
from promptgroup_router.routing.route import Route

OK = 200
HEADER = names.HEADER_DIAGNOSTICS.encode()
CACHE_MISS = names.HEADER_CACHE_MISS.encode()
ANTHROPIC, PREVIOUS = "diagnostics", "previous_message_id"
OPENAI, OPENAI_ID = "prompt_cache_options", "comparison_response_id"
MOST_ID = 256
"""Most characters of an answer's id."""
HEAD = 4096
"""Bytes of an answer in which its id and its beginning are looked for."""
MOST_HELD = 4 << 20
"""Bytes of a whole answer that are held until its usage is known; a longer one gets the forecast."""

_ID = re.compile(rb'"([A-Za-z0-9_.:-]{1,256})"')
_PLACES = {ApiKind.MESSAGES: b"message", ApiKind.RESPONSES: b"response"}
"""The member of an event that has the answer."""
_HOLDERS = (b"", *_PLACES.values())
"""The members that have its id, empty for the event or the answer itself."""
_OBJECT = re.compile(rb'\{(?=\s*")')
"""The beginning of an object that has members."""
_DATA = b"data:"
_DELTA, _USAGE = b'"message_delta"', b'"usage"'


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


class CacheDiagnosis(RequestFeature):
    """The question of a request's client about the cache, and its answer."""

    __slots__ = (
        "_before", "_change", "_exact", "_expected", "_group", "_known", "_metrics", "_owner", "_pick", "_question",
        "_tail", "_text", "_tokens_a_byte",
    )  # fmt: skip
    reads_usage = True

    def __init__(self, known: PromptDigests, route: Route, asked: CacheQuestion, text: int, metrics: Metrics) -> None:
        """Keep the question.

        Args:
            known: the prompts of earlier answers.
            route: where the request goes.
            asked: the question.
            text: length of the prompt, in bytes.
            metrics: count what is told.
        """
        self._known = known
        self._question = asked
        self._metrics = metrics
        self._group = route.group
        self._text = max(1, text)
        self._tokens_a_byte = route.demand.prompt / self._text
        self._owner = f"{route.group}\0{route.caller.name}\0{route.rewrite.domain.salt}"
        """Names whoever may ask about the answer: the caller, within the group and its part of the cache."""
        self._exact = route.candidates.rules.cached_tokens is CachedTokens.EXACT
        """False where clients may not know what was cached."""
        self._before = known.get(self._owner, asked.previous) if asked.previous else None
        """The prompt of the answer that the client names; None without one, and where nobody remembers it."""
        self._change: PromptChange | None = None
        """The first difference from it."""
        if self._before is not None:
            self._change = first_change(self._before, asked.digest)
        self._pick: Pick | None = None
        """The replica that answers."""
        self._expected = ""
        """The reason that was expected; empty before an answer."""
        self._tail: Tail | None = None
        """Reads the body of the answer."""

    def tail(self, tail: Tail, *, streamed: bool) -> Tail:
        """Know what reads the body, which has its usage at the end."""
        del streamed
        self._tail = tail
        return tail

    def answering(self, answer: Answering) -> None:
        """Tell the diagnosis in a header field, and in the body of an answer that can be read."""
        if not self._exact or answer.status != OK:
            return
        self._pick = answer.pick
        expected = self.expect(answer.pick)
        self._expected = expected.reason
        diagnosis = self.observe(answer.usage) or expected
        answer.fields.append((CACHE_MISS, diagnosis.header()))
        if not answer.compressed:
            answer_diagnosis = AnswerDiagnosis(diagnosis, self.observe, self.reported)
            answer.rewrite(
                Diagnosed(self._known, self._owner, self._question, answer_diagnosis, streamed=answer.streamed)
            )

    def ended(self, end: RequestEnd) -> None:
        """Count what was expected and what the engine has reported."""
        if self._expected and (observed := self.observe(end.usage)) is not None:
            self._metrics.cache_diagnoses.add(self._group, self._expected, observed.reason)

    def log_fields(self, usage: Usage | None) -> dict[str, str]:
        """Return what was expected, and what the engine has reported."""
        if not self._expected:
            return {}
        observed = self.observe(usage)
        result = {"promptgroup.cache_miss_expected": self._expected}
        return result | ({"promptgroup.cache_miss": observed.reason} if observed is not None else {})

    def expect(self, pick: Pick | None) -> MissDiagnosis:
        """Return what is expected of the cache of the replica that has the request."""
        if self._question.previous and self._before is None:
            return MissDiagnosis(NOT_FOUND)
        return expect(self._change, pick, self._tokens_a_byte)

    def observe(self, usage: Usage | None) -> MissDiagnosis | None:
        """Return what the usage of the answer shows; None where it shows nothing."""
        if usage is None or usage.cached_tokens is None:
            return None
        if self._question.previous and self._before is None:
            return MissDiagnosis(NOT_FOUND, observed=True)
        earlier = self._before.sizes[-1] / self._text if self._before is not None else 0.0
        return observe(self._change, self._pick, usage, earlier=earlier, named=self._before is not None)

    def reported(self) -> MissDiagnosis | None:
        """Return what the usage of the answer shows, as far as the body has come."""
        return self.observe(self._tail.usage()) if self._tail is not None else None


class AnswerDiagnosis:
    """Tells what is known when an answer begins, and then what its engine reports."""

    __slots__ = ("first", "held_against", "reported")

    def __init__(
        self,
        first: MissDiagnosis,
        held_against: Callable[[Usage | None], MissDiagnosis | None],
        reported: Callable[[], MissDiagnosis | None],
    ) -> None:
        """Keep them.

        Args:
            first: what is known when the answer begins.
            held_against: tells what a usage shows; None where it shows nothing.
            reported: tells the same of what has come of the answer.
        """
        self.first = first
        self.held_against = held_against
        self.reported = reported


class Diagnosed:
    """Puts a diagnosis into an answer on its way, and remembers the prompt by the answer's id."""

    def __init__(
        self, known: PromptDigests, owner: str, asked: CacheQuestion, told: AnswerDiagnosis, *, streamed: bool
    ) -> None:
        self._known = known
        self._owner = owner
        self._asked = asked
        self._told = told
        self._form = form = asked.form
        """The API whose objects have the field; None where the header has all."""
        self._streamed = streamed
        self._places = (_PLACES[form],) if form is not None else ()
        """The members of events that have the field."""
        self._head: bytes | None = b""
        """The beginning of the answer, until it has the id."""
        self._held = b""
        """A whole answer, until it can get the field."""
        self._done = form is None
        """True once nothing more gets the field."""
        self._events = WholeEvents() if streamed and form is not None else None

    def feed(self, data: bytes) -> bytes:
        """Return a part of the body with the field in its place; an event, or what may be the place, is kept back."""
        if self._head is not None:
            self._head = self._remember(self._head + data)
        if self._events is not None:
            return self._filled_events(self._events.feed(data))
        if self._done:
            return data
        whole, self._held = self._held + data, b""
        waits = not self._told.first.observed and len(whole) <= MOST_HELD
        if waits or (_OBJECT.search(whole) is None and len(whole) <= HEAD):
            self._held = whole
            return b""
        return self._filled_whole(whole, self._told.first)

    def finish(self) -> bytes:
        """Return what is left of the body; behind a stream, a comment with what its engine has reported."""
        if not self._streamed:
            held, self._held = self._held, b""
            return self._filled_whole(held, self._told.reported() or self._told.first) if held else b""
        left = self._filled_events(self._events.finish()) if self._events is not None else b""
        observed = self._told.reported()
        return left + (b"\n: %b: %b\n\n" % (CACHE_MISS, observed.header()) if observed is not None else b"")

    def _filled_whole(self, whole: bytes, diagnosis: MissDiagnosis) -> bytes:
        self._done = True
        search = _OBJECT.search(whole)
        return _with_field(whole, search.end(), diagnosis, self._form) if search is not None else whole

    def _filled_events(self, events: bytes) -> bytes:
        if not any(b'"%b"' % place in events for place in self._places) and _DELTA not in events:
            return events
        return b"".join(map(self._filled_line, events.splitlines(keepends=True)))

    def _filled_line(self, line: bytes) -> bytes:
        if not line.startswith(_DATA):
            return line
        if self._form is ApiKind.MESSAGES and _DELTA in line and _USAGE in line:
            return self._filled_delta(line)
        for place in self._places:
            if b'"%b"' % place not in line:
                continue
            reader = MemberReader(place, most=0)
            reader.feed(line[len(_DATA) :])
            if reader.begin == NOWHERE:
                continue
            result = _OBJECT.match(line, reader.begin + len(_DATA))
            if result is not None:
                return _with_field(line, result.end(), self._observed(line) or self._told.first, self._form)
        return line

    def _filled_delta(self, line: bytes) -> bytes:
        """Return the event that ends a message, with what its usage shows."""
        kind = MemberReader(b"type")
        kind.feed(line[len(_DATA) :])
        search = _OBJECT.search(line)
        observed = self._told.reported() if kind.value == _DELTA else None
        if observed is None or search is None:
            return line
        return _with_field(line, search.end(), observed, self._form)

    def _observed(self, line: bytes) -> MissDiagnosis | None:
        """Return what the usage in an event shows: one that counts nothing yet shows nothing."""
        if _USAGE not in line:
            return None
        tail: Tail = MessagesTail() if self._form is ApiKind.MESSAGES else ResponsesTail()
        tail.add(line)
        usage = tail.usage()
        return self._told.held_against(usage) if usage is not None and usage.prompt_tokens else None

    def _remember(self, head: bytes) -> bytes | None:
        """Remember the prompt by the id in the beginning of its answer; return None once nothing is looked for."""
        if answer_id := _id_of(head, streamed=self._streamed):
            self._known.put(self._owner, answer_id, self._asked.digest)
            return None
        return head if len(head) < HEAD else None


def _with_field(data: bytes, at: int, diagnosis: MissDiagnosis, form: ApiKind | None) -> bytes:
    """Return data with the field as the first member of the object that begins before a place."""
    return data[:at] + diagnosis.field(form) + b"," + data[at:] if form is not None else data


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
