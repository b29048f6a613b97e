"""A stream that may go on on another replica: asks engines for the ids of tokens, and for the rest of an answer.

| point       | what it does                                                                          |
|-------------|---------------------------------------------------------------------------------------|
| engine_body | asks for the ids of tokens                                                            |
| answering   | keeps them, and takes them out of what the client gets                                |
| tail        | tells the usage of the client's own prompt and of all tokens                          |
| rest        | asks another replica for the rest, behind the tokens of which the client has the text |
"""

from typing import Any

import orjson

from promptgroup_router.apis.request import ApiKind, ParsedRequest
from promptgroup_router.apis.usage import Tail, count
from promptgroup_router.base.errors import Failure
from promptgroup_router.features.resumed_stream.fitness import CARRIED, SHOWS_IDS, can_go_on
from promptgroup_router.features.resumed_stream.stream_text import StreamText, WholeUsage
from promptgroup_router.rings.index import Member
from promptgroup_router.routing.model_list import MODELS_PATH
from promptgroup_router.routing.points import Answering, RandomBytes, RequestEnd, RequestFeature
from promptgroup_router.routing.route import Route
from promptgroup_router.routing.state import RouterState

OK = 200
PATH = b"/v1/completions"
MOST_BYTES = 64 << 20
"""Most bytes of tokens that one process keeps of all answers; further ones cannot go on."""
RESUMED = b": the answer goes on on another replica\n\n"
"""The comment that tells a client so."""
_LOSSES = (Failure.RESET, Failure.ABORTED, Failure.STALLED, Failure.MALFORMED)
_TEXT_TOKENS = 16
"""Tokens of a text completion that names no limit."""


class ResumedStream(RequestFeature):
    """One stream, and what is kept to go on with it."""

    __slots__ = (
        "_body",
        "_context",
        "_counted",
        "_failure",
        "_group",
        "_kind",
        "_left",
        "_limit",
        "_shows_ids",
        "_state",
        "_tail",
        "_text",
    )

    def __init__(self, state: RouterState, route: Route, ask: ParsedRequest) -> None:
        """Begin with nothing.

        Args:
            state: of the router.
            route: where the request goes.
            ask: the request.
        """
        self._state = state
        self._group = route.group
        self._kind = ask.kind
        self._shows_ids = SHOWS_IDS in ask.doc
        """True if the client asks for the ids of tokens itself."""
        self._limit = _limit(ask.doc, ask.kind)
        """Most tokens that the client wants of the answer; 0 if it names no limit."""
        self._left = route.candidates.max_resumes
        """Times that the answer may still go on."""
        self._body: bytes | bytearray = b""
        """The body of the first request."""
        self._text: StreamText | None = None
        self._tail: WholeUsage | None = None
        self._counted = 0
        """Bytes that are counted of the tokens that are kept."""
        self._failure = Failure.RESET
        self._context = 0
        """Most tokens that the model takes of prompt and answer together; 0 while it is not known."""

    def engine_body(self, body: bytes | bytearray, member: Member, random: RandomBytes) -> bytes | bytearray:
        """Return the body with the question for the ids of tokens."""
        self._body = body
        if self._shows_ids:
            return body
        start = body.index(b"{") + 1
        return b"".join((body[:start], b'"%b":true,' % SHOWS_IDS.encode(), body[start:]))

    def tail(self, tail: Tail, *, streamed: bool) -> Tail:
        """Count the whole answer."""
        if not streamed:
            return tail
        self._text = StreamText(self._kind, shows_ids=self._shows_ids)
        self._tail = WholeUsage(tail, self._text)
        return self._tail

    def answering(self, answer: Answering) -> None:
        """Keep the tokens of a stream that can be read, and take their ids out of any other answer."""
        if self._text is not None and answer.streamed and answer.status == OK and not answer.compressed:
            answer.rewrite(self)

    def feed(self, content: bytes) -> bytes:
        """Return whole events of the stream as the client gets them."""
        text = self._text
        if text is None:
            return content
        result = text.feed(content)
        grown = text.kept.size - self._counted
        if grown > 0 and self._state.token_bytes + grown > MOST_BYTES:
            text.kept.give_up()
            grown = -self._counted
        self._counted += grown
        self._state.token_bytes += grown
        return result

    def finish(self) -> bytes:
        """Return nothing: no event is held."""
        return b""

    def rest(self, failure: Failure) -> "ResumedStream | None":
        """Return what asks for the rest; None if no other replica can give it."""
        text = self._text
        if failure not in _LOSSES and failure is not Failure.LEAVING:
            return None
        if text is None or not self._left or not text.whole or not text.kept.complete:
            return None
        if self._limit and self._limit <= text.kept.told:
            return None
        self._failure = failure
        return self

    @property
    def asks(self) -> bool:
        """True if the client names no limit, and nobody knows how long a text the model takes.

        A text completion needs a limit, and engines refuse one that is more than fits.
        """
        return not self._limit and not self._context

    def learn(self, body: bytes) -> bool:
        """Take the list of the engine's models. Return False if it does not tell how long a text they take."""
        try:
            models = orjson.loads(body)["data"]
            self._context = max(count(model.get("max_model_len")) or 0 for model in models)
        except (ValueError, LookupError, TypeError, AttributeError):
            return False
        return self._context > 0

    def request(self) -> tuple[bytes, bytes]:
        """Return the path and the body of the request for the rest, or of the question for the models."""
        text = self._text
        if text is None:
            raise RuntimeError("nothing was answered yet")
        if self.asks:
            return MODELS_PATH, b""
        kept = text.kept
        first = orjson.loads(self._body)
        fields: dict[str, Any] = {name: first[name] for name in CARRIED if name in first}
        fields["stream"] = fields[SHOWS_IDS] = True
        fields["max_tokens"] = max(1, (self._limit or self._context - kept.prompt) - kept.told)
        if least := first.get("min_tokens"):
            fields["min_tokens"] = max(0, least - kept.told)
        return PATH, b'{"prompt":[' + kept.ids() + b"]," + orjson.dumps(fields)[1:]

    def begins(self) -> bytes:
        """Take note that the rest begins; return the comment that tells the client so."""
        self._left -= 1
        if self._text is not None:
            self._text.go_on()
        if self._tail is not None:
            self._tail.go_on()
        reason = "leaving" if self._failure is Failure.LEAVING else "lost"
        self._state.metrics.resumed.add(self._group, reason)
        return RESUMED

    def ended(self, end: RequestEnd) -> None:
        """Keep no tokens any longer."""
        self._state.token_bytes -= self._counted
        self._counted = 0
        self._text = self._tail = None


def _limit(doc: dict[str, Any], kind: ApiKind) -> int:
    """Return the most tokens that the client wants of the answer; 0 if it names no limit."""
    if kind is ApiKind.TEXT:
        value = doc.get("max_tokens", _TEXT_TOKENS)
    else:
        value = doc.get("max_completion_tokens")
        value = doc.get("max_tokens") if value is None else value
    return value if isinstance(value, int) else 0


def resumable(state: RouterState, route: Route, request: ParsedRequest) -> ResumedStream | None:
    """Return the feature for a stream that may go on on another replica; None for any other request.

    Args:
        state: of the router.
        route: where the request goes.
        request: the request.
    """
    if (
        not route.candidates.max_resumes
        or not request.streamed
        or not request.raw
        or request.media
        or request.prompts + request.embedded > 1
    ):
        return None
    rewrite = route.rewrite
    if rewrite.preamble is not None and rewrite.preamble.tools is not None:
        return None
    if rewrite.domain.salt and ApiKind.TEXT.value not in (rewrite.salted or ()):
        return None
    if route.candidates.responses is not None or not can_go_on(request.kind, request.doc):
        return None
    return ResumedStream(state, route, request)
