"""The admin port of a router with workers: it answers for all of them what a single process answers for itself."""

from collections.abc import Callable, Sequence

import orjson

from promptgroup_router.admin import (
    EXPLAIN_PATH,
    JSON,
    JSON_LINES,
    PURGE_PATH,
    SAMPLES_PATH,
    TEXT,
    PendingAnswer,
    check_request,
    no_samples,
)
from promptgroup_router.admin_guard import AdminGuard
from promptgroup_router.base.errors import ApiError
from promptgroup_router.base.exposition import accepted
from promptgroup_router.contract import names
from promptgroup_router.http11.reader import HttpRequest
from promptgroup_router.proxy.downstream import ActiveRequest, ClientConnection
from promptgroup_router.response_cache.purge import parse_purge
from promptgroup_router.workers.crew import Crew
from promptgroup_router.workers.process import get, post
from promptgroup_router.workers.tables import Document, merge_tables, merge_unmatched


class WorkersAdmin:
    """The handler of the admin port."""

    def __init__(self, crew: Crew, guard: AdminGuard) -> None:
        self._crew = crew
        self._guard = guard

    def __call__(self, client: ClientConnection, request: HttpRequest) -> ActiveRequest | None:
        """Answer a request, or return what will once workers have answered."""
        try:
            check_request(self._guard, client, request)
        except ApiError as error:
            client.refuse(error)
            return None
        match request.head.path:
            case b"/healthz":
                self._status(client, "" if self._crew.running else "no worker runs")
            case b"/readyz":
                problem = "" if self._crew.ready else "no routing table has been read yet"
                self._status(client, "draining" if self._crew.draining else problem)
            case _:
                return PendingAnswer(client, self._answer(client, request))
        return None

    def _status(self, client: ClientConnection, problem: str) -> None:
        client.answer(503 if problem else 200, [(b"content-type", TEXT)], f"{problem or 'ok'}\n".encode())

    async def _answer(self, client: ClientConnection, request: HttpRequest) -> None:
        crew = self._crew
        match request.head.path:
            case b"/metrics":
                form = accepted(request.head.fields.get(b"accept", b""))
                client.answer(200, [(b"content-type", form.content_type)], (await crew.page(form)).encode())
            case b"/table":
                await self._merge(client, "/table", merge_tables)
            case b"/unmatched":
                await self._merge(client, "/unmatched", merge_unmatched)
            case b"/responses/samples":
                # a worker that keeps none refuses, and is not among those that answer
                pages = await crew.ask_all(get(SAMPLES_PATH.decode()))
                if not pages:
                    raise no_samples()
                client.answer(200, [(b"content-type", JSON_LINES)], b"".join(pages))
            case b"/responses/purge":
                parse_purge(bytes(request.body))  # refuses here what no worker would take
                token = request.head.fields.get(names.HEADER_ADMIN_TOKEN.encode(), b"")
                answers = await crew.ask_all(post(PURGE_PATH.decode(), bytes(request.body), token))
                if len(answers) < len(crew.serving):
                    raise ApiError(
                        503, "a worker or its store does not answer, and may keep answers: retry", code="overloaded"
                    )
                purged = sum(orjson.loads(answer)["purged"] for answer in answers)
                client.answer(200, [(b"content-type", JSON)], orjson.dumps({"purged": purged}))
            case _:
                found = await crew.ask_one(post(EXPLAIN_PATH.decode(), bytes(request.body)))
                if found is None:
                    raise _nobody()
                client.answer(found[0], [(b"content-type", JSON)], found[1])

    async def _merge(
        self, client: ClientConnection, path: str, together: Callable[[Sequence[Document]], bytes]
    ) -> None:
        answers = await self._crew.ask_all(get(path))
        if not answers:
            raise _nobody()
        body = together([orjson.loads(answer) for answer in answers])
        client.answer(200, [(b"content-type", JSON)], body)


def _nobody() -> ApiError:
    return ApiError(503, "no worker answers: retry", code="overloaded")
