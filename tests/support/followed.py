"""Clients of a flight, without sockets."""

from promptgroup_router.base.metrics import Metrics
from promptgroup_router.flights.follower import Follower
from promptgroup_router.flights.source import Source
from promptgroup_router.http11.reader import RequestReader
from support.wire import post


class TakenAnswer:
    """A client's connection that keeps what it is sent."""

    def __init__(self) -> None:
        self.sent = b""
        self.ended: str = ""
        self.keeps_alive = True

    def write(self, data: bytes) -> None:
        self.sent += data

    def answer(self, status: int, headers: list, body: bytes) -> None:
        self.sent += b"%d " % status + body
        self.ended = "answered"

    def finish(self, *, keep: bool) -> None:
        self.ended = "kept" if keep else "closed"

    def cut(self, *, visibly: bool) -> None:
        self.ended = "reset" if visibly else "cut"


class Origin:
    """What brings an answer, which notes what it is told."""

    def __init__(self) -> None:
        self.told: list[str] = []

    def client_left(self) -> None:
        self.told.append("left")

    def pause(self) -> None:
        self.told.append("pause")

    def resume(self) -> None:
        self.told.append("resume")

    def tick(self, now: float) -> None:
        self.told.append(f"tick {now:g}")


def follower(source: Source, client: TakenAnswer, shared=None, version: str = "1.1") -> Follower:
    reader = RequestReader(1000)
    reader.feed(post(b"{}", version=version))
    return Follower(
        client,
        reader.next(),
        source,
        fields=[(b"cache-status", b"test")],
        request_id=b"req-1",
        answer_id=b"new",
        group="chat/support",
        metrics=Metrics(),
        clock=lambda: 0.0,
        shared=shared,
    )
