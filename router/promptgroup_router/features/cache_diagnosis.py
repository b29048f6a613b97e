"""Reports to a client, on request, why its prompt missed the cache, in the terms of the hosted APIs.

| request                                             | answer                                                 |
|-----------------------------------------------------|--------------------------------------------------------|
| Anthropic's `diagnostics.previous_message_id`       | `diagnostics.cache_miss_reason` of the message         |
| OpenAI's `prompt_cache_options.comparison_response_id` | `prompt_cache_diagnostics` of the response          |
| the header `x-promptgroup-diagnostics`              | the header `x-promptgroup-cache-miss`, as for all      |

Engines need not support this: the router compares the prompt with that of the answer that the client names, and has a
record of the replica that holds the session. The result is a forecast, and is marked as one. A diagnosis that is sent
after the engine has reported its usage is checked against this usage:

| answer               | forecast in                            | observed in                                         |
|----------------------|----------------------------------------|-----------------------------------------------------|
| whole                | header and field, if it has no usage   | header and field                                    |
| stream               | header                                 | a comment at the end, `: x-promptgroup-cache-miss:` |
| stream of messages   | the same, and `message_start`          | the same, and the `message_delta` with the usage    |
| stream of a response | the same, and events without usage     | the same, and the event with the usage              |

Every client that asks gets a diagnosis, except where clients do not get exact counts of cached tokens (`cachedTokens`).
"""

import re
from collections.abc import Callable
from copy import copy

from promptgroup_contract import names
from promptgroup_contract.caller_rules import CachedTokens
from promptgroup_router.apis.request import ApiKind, ParsedRequest, encoded, wrong
from promptgroup_router.apis.usage import MessagesTail, ResponsesTail, Tail, Usage
from promptgroup_router.base.metrics import Metrics
from promptgroup_router.documents.members import NOWHERE, MemberReader
from promptgroup_router.features.miss_diagnosis import NOT_FOUND, MissDiagnosis, expect, observe
from promptgroup_router.features.prompt_digest import CacheQuestion, PromptChange, PromptDigests, digest, first_change
from promptgroup_router.http11.whole_events import WholeEvents
from promptgroup_router.placement.pick import Pick
from promptgroup_router.routing.points import Answering, RequestEnd, RequestFeature
from promptgroup_router.routing.route import Route

OK = 200
HEADER = names.HEADER_DIAGNOSTICS.encode()
CACHE_MISS = names.HEADER_CACHE_MISS.encode()
ANTHROPIC, PREVIOUS = "diagnostics", "previous_message_id"
OPENAI, OPENAI_ID = "prompt_cache_options", "comparison_response_id"
MOST_ID = 256
"""Most characters of an answer's id."""
HEAD = 4096
"""Bytes of an answer that are searched for its id and its beginning."""
MOST_HELD = 4 << 20
"""Bytes of a whole answer that are buffered until its usage has arrived; a longer one gets the forecast."""

_ID = re.compile(rb'"([A-Za-z0-9_.:-]{1,256})"')
_PLACES = {ApiKind.MESSAGES: b"message", ApiKind.RESPONSES: b"response"}
"""The member of an event that contains the answer."""
_HOLDERS = (b"", *_PLACES.values())
"""The members that contain its id; empty for the event or the answer itself."""
_OBJECT = re.compile(rb'\{(?=\s*")')
"""The beginning of an object that has members."""
_DATA = b"data:"
_DELTA, _USAGE = b'"message_delta"', b'"usage"'


def asks(request: ParsedRequest, *, by_header: bool) -> bool:
    """Return True if a request asks for a diagnosis; `by_header` is whether it has HEADER."""
    if request.kind is ApiKind.MESSAGES and request.doc.get(ANTHROPIC) is not None:
        return True
    options = request.doc.get(OPENAI) if request.kind is ApiKind.RESPONSES else None
    if isinstance(options, dict) and OPENAI_ID in options:
        return True
    return by_header and request.kind in (ApiKind.CHAT, ApiKind.MESSAGES, ApiKind.RESPONSES)


def question(request: ParsedRequest, headers: dict[bytes, bytes]) -> CacheQuestion | None:
    """Return the question of a request about the cache; None for nearly all requests, which ask for no diagnosis.

    Raises:
        ApiError: 400: the field of the API has an invalid value.
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
    """Return the request without the question, for an engine that does not support it."""
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
        "_before", "_change", "_digests", "_exact", "_expected", "_group", "_metrics", "_owner", "_pick", "_question",
        "_tail", "_text", "_tokens_a_byte",
    )  # fmt: skip
    reads_usage = True

    def __init__(
        self, digests: PromptDigests, route: Route, question: CacheQuestion, text: int, metrics: Metrics
    ) -> None:
        """Store the question, and compare the prompt with the one that it names.

        Args:
            digests: the prompts of earlier answers.
            route: its route.
            question: the question.
            text: length of the prompt, in bytes.
            metrics: count the diagnoses.
        """
        self._digests = digests
        self._question = question
        self._metrics = metrics
        self._group = route.group
        self._text = max(1, text)
        self._tokens_a_byte = route.demand.prompt / self._text
        self._owner = f"{route.group}\0{route.caller.name}\0{route.rewrite.domain.salt}"
        """Identifies the clients that may ask about the answer: the caller, in the group and its cache domain."""
        self._exact = route.candidates.rules.cached_tokens is CachedTokens.EXACT
        """False where clients do not get exact counts of cached tokens."""
        self._before = digests.get(self._owner, question.previous) if question.previous else None
        """The prompt of the answer that the client names; None without one, and where it is not recorded."""
        self._change: PromptChange | None = None
        """The first difference from that prompt; None without one."""
        if self._before is not None:
            self._change = first_change(self._before, question.digest)
        self._pick: Pick | None = None
        """The replica that answers."""
        self._expected = ""
        """The forecast reason; empty before an answer."""
        self._tail: Tail | None = None
        """Reads the body of the answer."""

    def tail(self, tail: Tail, *, streamed: bool) -> Tail:
        """Store the reader of the body, which has its usage at the end."""
        del streamed
        self._tail = tail
        return tail

    def answering(self, answer: Answering) -> None:
        """Add the diagnosis to the header, and to the body of an answer that can be parsed."""
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
                Diagnosed(self._digests, self._owner, self._question, answer_diagnosis, streamed=answer.streamed)
            )

    def ended(self, end: RequestEnd) -> None:
        """Count the forecast and the observed reason."""
        if self._expected and (observed := self.observe(end.usage)) is not None:
            self._metrics.cache_diagnoses.add(self._group, self._expected, observed.reason)

    def log_fields(self, usage: Usage | None) -> dict[str, str]:
        """Return the forecast and the observed reason."""
        if not self._expected:
            return {}
        observed = self.observe(usage)
        result = {"promptgroup.cache_miss_expected": self._expected}
        return result | ({"promptgroup.cache_miss": observed.reason} if observed is not None else {})

    def expect(self, pick: Pick | None) -> MissDiagnosis:
        """Return the forecast for the cache of the replica that gets the request."""
        if self._question.previous and self._before is None:
            return MissDiagnosis(NOT_FOUND)
        return expect(self._change, pick, self._tokens_a_byte)

    def observe(self, usage: Usage | None) -> MissDiagnosis | None:
        """Return the diagnosis by the usage of the answer; None where the usage is not sufficient."""
        if usage is None or usage.cached_tokens is None:
            return None
        if self._question.previous and self._before is None:
            return MissDiagnosis(NOT_FOUND, observed=True)
        earlier = self._before.sizes[-1] / self._text if self._before is not None else 0.0
        return observe(self._change, self._pick, usage, earlier=earlier, named=self._before is not None)

    def reported(self) -> MissDiagnosis | None:
        """Return the diagnosis by the usage in the part of the body that has arrived; None if there is none yet."""
        return self.observe(self._tail.usage()) if self._tail is not None else None


class AnswerDiagnosis:
    """The diagnosis when an answer begins, and then the diagnosis by the usage that its engine reports."""

    __slots__ = ("first", "held_against", "reported")

    def __init__(
        self,
        first: MissDiagnosis,
        held_against: Callable[[Usage | None], MissDiagnosis | None],
        reported: Callable[[], MissDiagnosis | None],
    ) -> None:
        """Store them.

        Args:
            first: the diagnosis when the answer begins.
            held_against: returns the diagnosis by a usage; None where the usage is not sufficient.
            reported: returns the diagnosis by the part of the answer that has arrived.
        """
        self.first = first
        self.held_against = held_against
        self.reported = reported


class Diagnosed:
    """Inserts a diagnosis into an answer in transit, and records the prompt by the answer's id."""

    def __init__(
        self, digests: PromptDigests, owner: str, question: CacheQuestion, diagnosis: AnswerDiagnosis, *, streamed: bool
    ) -> None:
        self._digests = digests
        self._owner = owner
        self._question = question
        self._diagnosis = diagnosis
        self._form = form = question.form
        """The API whose objects have the field; None where only the header has the diagnosis."""
        self._streamed = streamed
        self._places = (_PLACES[form],) if form is not None else ()
        """The members of events that get the field."""
        self._head: bytes | None = b""
        """The beginning of the answer, until it contains the id."""
        self._held = b""
        """The buffer of a whole answer, until the field can be inserted."""
        self._done = form is None
        """True once the field needs no further insertion."""
        self._events = WholeEvents() if streamed and form is not None else None

    def feed(self, data: bytes) -> bytes:
        """Return a part of the body with the field inserted; incomplete events and possible places are held back."""
        if self._head is not None:
            self._head = self._remember(self._head + data)
        if self._events is not None:
            return self._filled_events(self._events.feed(data))
        if self._done:
            return data
        whole, self._held = self._held + data, b""
        waits = not self._diagnosis.first.observed and len(whole) <= MOST_HELD
        if waits or (_OBJECT.search(whole) is None and len(whole) <= HEAD):
            self._held = whole
            return b""
        return self._filled_whole(whole, self._diagnosis.first)

    def finish(self) -> bytes:
        """Return the rest of the body; after a stream, a comment with the diagnosis by the engine's usage."""
        if not self._streamed:
            held, self._held = self._held, b""
            return self._filled_whole(held, self._diagnosis.reported() or self._diagnosis.first) if held else b""
        left = self._filled_events(self._events.finish()) if self._events is not None else b""
        observed = self._diagnosis.reported()
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
        if self._form is ApiKind.MESSAGES and line.find(_DELTA) >= 0 and line.find(_USAGE) >= 0:
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
                return _with_field(line, result.end(), self._observed(line) or self._diagnosis.first, self._form)
        return line

    def _filled_delta(self, line: bytes) -> bytes:
        """Return the event that ends a message, with the diagnosis by its usage."""
        kind = MemberReader(b"type")
        kind.feed(line[len(_DATA) :])
        search = _OBJECT.search(line)
        observed = self._diagnosis.reported() if kind.value == _DELTA else None
        if observed is None or search is None:
            return line
        return _with_field(line, search.end(), observed, self._form)

    def _observed(self, line: bytes) -> MissDiagnosis | None:
        """Return the diagnosis by the usage in an event; None if the usage counts no prompt tokens yet."""
        if line.find(_USAGE) < 0:
            return None
        tail: Tail = MessagesTail() if self._form is ApiKind.MESSAGES else ResponsesTail()
        tail.add(line)
        usage = tail.usage()
        return self._diagnosis.held_against(usage) if usage is not None and usage.prompt_tokens else None

    def _remember(self, head: bytes) -> bytes | None:
        """Record the prompt by the id at the beginning of its answer; return None once the search has ended."""
        if answer_id := _id_of(head, streamed=self._streamed):
            self._digests.put(self._owner, answer_id, self._question.digest)
            return None
        return head if len(head) < HEAD else None


def _with_field(data: bytes, at: int, diagnosis: MissDiagnosis, form: ApiKind | None) -> bytes:
    """Return data with the field as the first member of the object that begins before a place."""
    return data[:at] + diagnosis.field(form) + b"," + data[at:] if form is not None else data


def _id_of(head: bytes, *, streamed: bool) -> str:
    """Return the id of an answer that begins with these bytes; empty if they do not contain it."""
    events = [line[len(_DATA) :] for line in head.split(b"\n") if line.startswith(_DATA)] if streamed else [head]
    for event in events:
        for holder in _HOLDERS:
            reader = MemberReader(b"id", holder)
            reader.feed(event)
            if (result := _ID.fullmatch(reader.value)) is not None:
                return result[1].decode()
    return ""
