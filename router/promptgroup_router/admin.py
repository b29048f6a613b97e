"""Serves the admin port: health, metrics, the table in use, explanations.

No answer contains text of a prompt, but for samples of undeclared ones and of questions where
`--keep-samples` asks for them.
"""

import asyncio
import logging
from collections.abc import Awaitable, Callable, Coroutine, Generator
from dataclasses import dataclass

import orjson

from promptgroup_contract.encoding import encode_group
from promptgroup_router.admin_guard import AdminGuard
from promptgroup_router.base.errors import ApiError
from promptgroup_router.base.exposition import TextFormat, accepted
from promptgroup_router.base.steps import in_slices
from promptgroup_router.decision.composition import features_of
from promptgroup_router.explain import explain, parse_explain_request
from promptgroup_router.http11.reader import HttpRequest
from promptgroup_router.proxy.downstream import ActiveRequest, ClientConnection
from promptgroup_router.routing.state import RouterState
from promptgroup_router.undeclared.unmatched import document

EXPLAIN_PATH = b"/explain"
PURGE_PATH = b"/responses/purge"
SAMPLES_PATH = b"/responses/samples"

PATHS = (b"/healthz", b"/readyz", b"/metrics", b"/table", b"/unmatched", EXPLAIN_PATH, PURGE_PATH, SAMPLES_PATH)
ADMIN_BODY_BYTES = 2 << 20
"""Most bytes of a body: explaining one blocks the event loop, since the answer depends on the loop's own state. Longer
requests are explained by a table file."""
JSON = b"application/json"
JSON_LINES = b"application/jsonl"
TEXT = b"text/plain; charset=utf-8"

BLOCK_PIECES = 1000
"""Pieces of an answer that are joined in one step."""

log = logging.getLogger("promptgroup.router")


def check_request(guard: AdminGuard, client: ClientConnection, request: HttpRequest) -> None:
    """Check that a request is for one of the paths, from a client that may use it.

    Raises:
        ApiError: 403, see `AdminGuard`; 404, there is no such path; 405, it does not allow the method.
    """
    path, method = request.head.path, request.head.method
    guard.check(request, client.sender.peer_address(), changes=path == PURGE_PATH)
    if path not in PATHS:
        listed = ", ".join(item.decode() for item in PATHS)
        raise ApiError(404, f"there is nothing at this path: use one of {listed}", code="not_found")
    allowed = (b"POST",) if path in (EXPLAIN_PATH, PURGE_PATH) else (b"GET", b"HEAD")
    if method not in allowed:
        name = allowed[0].decode()
        raise ApiError(405, f"this path only allows {name}: use it", code="method_not_allowed", allow=name)


def _refuse(client: ClientConnection, error: ApiError) -> None:
    client.answer(error.status, error.headers(), error.body())


def table_steps(state: RouterState, now: float) -> Generator[None, None, bytes]:
    """Return the table in use and the state of its replicas as JSON, written in steps of a group or a replica."""
    view, blocks = state.index, list[bytes]()
    pieces = [b'{\n  "version": ', orjson.dumps(view.table.version), b',\n  "groups": [']
    comma = b"\n    "
    for group in view.table.groups:
        shown = {"namespace": group.namespace, "name": group.name, **encode_group(group)}
        pieces += (comma, _indented(shown, 4))
        comma = b",\n    "
        if len(pieces) > BLOCK_PIECES:
            blocks, pieces = [*blocks, b"".join(pieces)], []
        yield
    pieces.append(b"\n  ]")
    conflicts = (
        ("conflicts", view.conflicts),
        ("aliasConflicts", view.alias_conflicts),
        ("nameConflicts", view.name_conflicts),
        ("moves", list(state.moves.documents(now))),
    )
    for name, result in conflicts:
        pieces.append(b',\n  "%b": %b' % (name.encode(), _indented(result, 2)))
        yield
    pieces.append(b',\n  "replicas": {')
    comma = b"\n    "
    for id_, replica in list(state.balancer.members.replicas.items()):
        place = replica.costs.wait_for_place(replica.load, replica.step)
        entry = {
            "inFlight": replica.in_flight,
            "inFlightOfPeers": replica.peer_in_flight,
            "waitSeconds": round(replica.wait(now) + place + replica.late(now), 3),
            "stepSeconds": round(replica.step, 4),
            "liveSessions": len(replica.live),
            "liveTokens": round(replica.live.tokens),
            "kvTokens": replica.costs.kv_tokens,
            "prefillTokensPerSecond": round(replica.costs.rate),
        }
        pieces += (comma, orjson.dumps(id_), b": ", _indented(entry, 4))
        comma = b",\n    "
        if len(pieces) > BLOCK_PIECES:
            blocks, pieces = [*blocks, b"".join(pieces)], []
        yield
    pieces.append(b"\n  }\n}")
    return b"".join([*blocks, *pieces])


def _indented(value: object, depth: int) -> bytes:
    """Return JSON whose lines behind the first have so many spaces more; no string has a line end."""
    return orjson.dumps(value, option=orjson.OPT_INDENT_2).replace(b"\n", b"\n" + b" " * depth)


class PendingAnswer:
    """A request whose answer takes a while."""

    def __init__(self, client: ClientConnection, answering: Coroutine[object, object, None]) -> None:
        """Begin.

        Args:
            client: the connection.
            answering: answers on it; an ApiError that it raises is the answer.
        """
        self._client = client
        self._task = asyncio.ensure_future(self._run(answering))

    def client_left(self) -> None:
        """Give up."""
        self._task.cancel()

    def pause(self) -> None:
        """Do nothing: the answer is written at once."""

    def resume(self) -> None:
        """Do nothing: the answer is written at once."""

    def tick(self, now: float) -> None:
        """Do nothing: each request has a time limit of its own."""

    async def _run(self, answering: Coroutine[object, object, None]) -> None:
        try:
            await answering
        except ApiError as error:
            _refuse(self._client, error)
        except Exception:
            log.exception("the admin port could not answer")
            _refuse(self._client, ApiError(503, "the answer cannot be made: retry", code="overloaded"))


def no_samples() -> ApiError:
    """Return what is answered where samples are not allowed."""
    problem = "this router keeps no samples of clients' questions: allow them with --keep-samples"
    return ApiError(403, problem, code="not_allowed")


@dataclass(frozen=True, slots=True)
class KeptAnswers:
    """The admin port's operations on a router's response cache."""

    purge: Callable[[bytes], Awaitable[int]]
    """Removes cached answers that match a body. Returns their number; raises ApiError."""
    samples: Callable[[], bytes] | None
    """Returns pairs of questions for people to judge; None where samples are not allowed."""


class Admin:
    """The handler of the admin port."""

    def __init__(
        self,
        state: RouterState,
        connections: Callable[[], int],
        clock: Callable[[], float],
        guard: AdminGuard,
        cached_answers: KeptAnswers | None = None,
    ) -> None:
        self._guard = guard
        self._state = state
        self._connections = connections
        self._clock = clock
        self._cached_answers = cached_answers

    def __call__(self, client: ClientConnection, request: HttpRequest) -> ActiveRequest | None:
        """Answer a request, or return what will."""
        try:
            check_request(self._guard, client, request)
        except ApiError as error:
            _refuse(client, error)
            return None
        match request.head.path:
            case b"/healthz":
                client.answer(200, [(b"content-type", TEXT)], b"ok\n")
            case b"/readyz":
                problem = self._state.not_ready
                client.answer(503 if problem else 200, [(b"content-type", TEXT)], problem or b"ok\n")
            case b"/metrics":
                return PendingAnswer(client, self._metrics(client, accepted(request.head.fields.get(b"accept", b""))))
            case b"/table":
                return PendingAnswer(client, self._tell_table(client))
            case b"/unmatched":
                client.answer(200, [(b"content-type", JSON)], self._unmatched())
            case b"/responses/samples":
                cached_answers = self._cached_answers
                if cached_answers is None or cached_answers.samples is None:
                    _refuse(client, no_samples())
                else:
                    client.answer(200, [(b"content-type", JSON_LINES)], cached_answers.samples())
            case b"/responses/purge":
                return PendingAnswer(client, self._purge(client, bytes(request.body)))
            case _:
                self._explain(client, bytes(request.body))
        return None

    async def _metrics(self, client: ClientConnection, form: TextFormat) -> None:
        text = await in_slices(self._state.exposition_steps(self._clock(), self._connections(), form), lasting=True)
        client.answer(200, [(b"content-type", form.content_type)], text.encode())

    def _explain(self, client: ClientConnection, question: bytes) -> None:
        try:
            answer = explain(self._state, parse_explain_request(question), self._clock())
        except ApiError as error:
            _refuse(client, error)
            return
        client.answer(200, [(b"content-type", JSON)], answer)

    async def _purge(self, client: ClientConnection, subject: bytes) -> None:
        purged = await self._cached_answers.purge(subject) if self._cached_answers is not None else 0
        client.answer(200, [(b"content-type", JSON)], orjson.dumps({"purged": purged}))

    async def _tell_table(self, client: ClientConnection) -> None:
        client.answer(
            200, [(b"content-type", JSON)], await in_slices(table_steps(self._state, self._clock()), lasting=True)
        )

    def _unmatched(self) -> bytes:
        now, rates = self._clock(), self._state.index.prefill_rates()
        unmatched = features_of(self._state).unmatched
        return orjson.dumps(
            document(unmatched.prefixes, now, rates) | unmatched.shared_prefixes.document(now, rates),
            option=orjson.OPT_INDENT_2,
        )
