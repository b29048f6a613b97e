"""A stream that another replica may continue: requests the ids of tokens, and the rest of an answer, from engines.

| point       | what it does                                                                          |
|-------------|---------------------------------------------------------------------------------------|
| engine_body | requests the ids of tokens                                                            |
| answering   | stores the ids, and removes them from the client's answer                             |
| tail        | reports the usage of the client's own prompt and of all tokens                        |
| rest        | requests the rest, after the tokens whose text the client has, from another replica   |
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
"""Most bytes of token ids that one process stores for all answers; further answers cannot be continued."""
RESUMED = b": the answer goes on on another replica\n\n"
"""The comment in the stream that informs the client."""
_LOSSES = (Failure.RESET, Failure.ABORTED, Failure.STALLED, Failure.MALFORMED)
_TEXT_TOKENS = 16
"""Most tokens of a text completion whose request has no limit."""


class ResumedStream(RequestFeature):
    """One stream, and the data that is stored to continue it."""

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
        """Begin without tokens.

        Args:
            state: of the router.
            route: its route.
            ask: the request.
        """
        self._state = state
        self._group = route.group
        self._kind = ask.kind
        self._shows_ids = SHOWS_IDS in ask.doc
        """True if the client itself requests the ids of tokens."""
        self._limit = _limit(ask.doc, ask.kind)
        """Most tokens that the client allows for the answer; 0 if it sets no limit."""
        self._left = route.candidates.max_resumes
        """Number of times that the answer may still be continued."""
        self._body: bytes | bytearray = b""
        """The body of the first request."""
        self._text: StreamText | None = None
        self._tail: WholeUsage | None = None
        self._counted = 0
        """Bytes of the stored tokens that the process's total includes."""
        self._failure = Failure.RESET
        self._context = 0
        """Context length of the model: most tokens of prompt and answer together; 0 until it has been read."""

    def engine_body(self, body: bytes | bytearray, member: Member, random: RandomBytes) -> bytes | bytearray:
        """Return the body with the field that requests the ids of tokens."""
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
        """Rewrite a stream that can be parsed, to store its tokens and to remove their ids."""
        if self._text is not None and answer.streamed and answer.status == OK and not answer.compressed:
            answer.rewrite(self)

    def feed(self, content: bytes) -> bytes:
        """Return complete events of the stream as the client gets them."""
        text = self._text
        if text is None:
            return content
        result = text.feed(content)
        grown = text.tokens.size - self._counted
        if grown > 0 and self._state.token_bytes + grown > MOST_BYTES:
            text.tokens.give_up()
            grown = -self._counted
        self._counted += grown
        self._state.token_bytes += grown
        return result

    def finish(self) -> bytes:
        """Return nothing: no event is held."""
        return b""

    def rest(self, failure: Failure) -> "ResumedStream | None":
        """Return the feature, which requests the rest; None if no other replica can continue the answer."""
        text = self._text
        if failure not in _LOSSES and failure is not Failure.LEAVING:
            return None
        if text is None or not self._left or not text.whole or not text.tokens.complete:
            return None
        if self._limit and self._limit <= text.tokens.passed_on:
            return None
        self._failure = failure
        return self

    @property
    def asks(self) -> bool:
        """True if the client sets no limit, and the model's context length has not been read.

        A text completion needs a limit, and engines refuse one that exceeds the context length.
        """
        return not self._limit and not self._context

    def learn(self, body: bytes) -> bool:
        """Read the context length from the engine's list of models. Return False if the list does not contain it."""
        try:
            models = orjson.loads(body)["data"]
            self._context = max(count(model.get("max_model_len")) or 0 for model in models)
        except (ValueError, LookupError, TypeError, AttributeError):
            return False
        return self._context > 0

    def request(self) -> tuple[bytes, bytes]:
        """Return the path and the body of the request for the rest, or of the request for the list of models."""
        text = self._text
        if text is None:
            raise RuntimeError("nothing was answered yet")
        if self.asks:
            return MODELS_PATH, b""
        tokens = text.tokens
        first = orjson.loads(self._body)
        fields: dict[str, Any] = {name: first[name] for name in CARRIED if name in first}
        fields["stream"] = fields[SHOWS_IDS] = True
        fields["max_tokens"] = max(1, (self._limit or self._context - tokens.prompt) - tokens.passed_on)
        if least := first.get("min_tokens"):
            fields["min_tokens"] = max(0, least - tokens.passed_on)
        return PATH, b'{"prompt":[' + tokens.ids() + b"]," + orjson.dumps(fields)[1:]

    def begins(self) -> bytes:
        """Record that the rest begins; return the comment that informs the client."""
        self._left -= 1
        if self._text is not None:
            self._text.go_on()
        if self._tail is not None:
            self._tail.go_on()
        reason = "leaving" if self._failure is Failure.LEAVING else "lost"
        self._state.metrics.resumed.add(self._group, reason)
        return RESUMED

    def ended(self, end: RequestEnd) -> None:
        """Release the stored tokens."""
        self._state.token_bytes -= self._counted
        self._counted = 0
        self._text = self._tail = None


def _limit(doc: dict[str, Any], kind: ApiKind) -> int:
    """Return the most tokens that the client allows for the answer; 0 if it sets no limit."""
    if kind is ApiKind.TEXT:
        value = doc.get("max_tokens", _TEXT_TOKENS)
    else:
        value = doc.get("max_completion_tokens")
        value = doc.get("max_tokens") if value is None else value
    return value if isinstance(value, int) else 0


def resumable(state: RouterState, route: Route, request: ParsedRequest) -> ResumedStream | None:
    """Return the feature for a stream that another replica may continue; None for any other request.

    Args:
        state: of the router.
        route: its route.
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
    if rewrite.domain.salt and ApiKind.TEXT.value not in (route.candidates.rules.salted or ()):
        return None
    if route.candidates.responses is not None or not can_go_on(request.kind, request.doc):
        return None
    return ResumedStream(state, route, request)
