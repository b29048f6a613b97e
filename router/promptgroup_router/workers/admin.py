"""The admin port of a router with workers: it answers for all of them what a single process answers for itself."""

import asyncio
import logging
from collections.abc import Callable, Sequence

import orjson

from promptgroup_router.admin import EXPLAIN_PATH, JSON, METRICS, TEXT, check_request
from promptgroup_router.base.errors import ApiError
from promptgroup_router.http11.reader import HttpRequest
from promptgroup_router.proxy.downstream import ActiveRequest, ClientConnection
from promptgroup_router.workers.crew import Crew
from promptgroup_router.workers.process import get, post
from promptgroup_router.workers.tables import Document, merge_tables, merge_unmatched

log = logging.getLogger("promptgroup.workers")


class WorkersAdmin:
    """The handler of the admin port."""

    def __init__(self, crew: Crew) -> None:
        self._crew = crew

    def __call__(self, client: ClientConnection, request: HttpRequest) -> ActiveRequest | None:
        """Answer a request, or return what will once workers have answered."""
        try:
            check_request(request)
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
                return _Pending(client, request, self._crew)
        return None

    def _status(self, client: ClientConnection, problem: str) -> None:
        client.answer(503 if problem else 200, [(b"content-type", TEXT)], f"{problem or 'ok'}\n".encode())


class _Pending:
    """A request for which workers are asked."""

    def __init__(self, client: ClientConnection, request: HttpRequest, crew: Crew) -> None:
        self._client = client
        self._crew = crew
        self._task = asyncio.ensure_future(self._run(request))

    def client_left(self) -> None:
        self._task.cancel()

    def pause(self) -> None:
        """Do nothing: the answer is written at once."""

    def resume(self) -> None:
        """Do nothing: the answer is written at once."""

    def tick(self, now: float) -> None:
        """Do nothing: workers are given a time to answer."""

    async def _run(self, request: HttpRequest) -> None:
        try:
            await self._answer(request)
        except ApiError as error:
            self._client.refuse(error)
        except Exception:
            log.exception("the admin port could not answer")
            self._client.refuse(ApiError(503, "the workers' answers cannot be read: retry", code="overloaded"))

    async def _answer(self, request: HttpRequest) -> None:
        client, crew = self._client, self._crew
        match request.head.path:
            case b"/metrics":
                client.answer(200, [(b"content-type", METRICS)], (await crew.page()).encode())
            case b"/table":
                await self._merge("/table", merge_tables)
            case b"/unmatched":
                await self._merge("/unmatched", merge_unmatched)
            case _:
                found = await crew.ask_one(post(EXPLAIN_PATH.decode(), request.body))
                if found is None:
                    raise _nobody()
                client.answer(found[0], [(b"content-type", JSON)], found[1])

    async def _merge(self, path: str, together: Callable[[Sequence[Document]], bytes]) -> None:
        answers = await self._crew.ask_all(get(path))
        if not answers:
            raise _nobody()
        body = together([orjson.loads(answer) for answer in answers])
        self._client.answer(200, [(b"content-type", JSON)], body)


def _nobody() -> ApiError:
    return ApiError(503, "no worker answers: retry", code="overloaded")
