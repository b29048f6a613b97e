"""Kopf in a thread, which fills the stores of an operator that runs no passes."""

import asyncio
import gc
import threading
import warnings
from collections.abc import Callable, Iterator
from contextlib import contextmanager

import kopf

from promptgroup_operator import handlers
from promptgroup_operator.base.settings import Settings


@contextmanager
def watching(namespaces: tuple[str, ...] = ()) -> Iterator[handlers.Operator]:
    """Kopf against the server of the environment's kubeconfig; it ends without an error."""
    registry, operator = handlers.build(Settings(namespaces=namespaces))
    operator.start, operator._workers = operator.resync.start, []  # type: ignore[method-assign]
    ready, stop = threading.Event(), threading.Event()
    ended: list[Exception] = []

    async def run() -> None:
        await kopf.operator(
            registry=registry,
            identity="test",  # type: ignore[arg-type]
            standalone=True,
            clusterwide=not namespaces,
            namespaces=namespaces,
            stop_flag=stop,
            ready_flag=ready,
        )

    def main() -> None:
        try:
            asyncio.run(run())
        except Exception as error:  # noqa: BLE001 - the test says what it expects
            ended.append(error)

    thread = threading.Thread(target=main, daemon=True)
    thread.start()
    try:
        yield operator
    finally:
        stop.set()
        thread.join(10)  # one of Kopf's watches may miss its cancellation: `handlers.run` does not wait for it either
        with warnings.catch_warnings():
            warnings.simplefilter("ignore", ResourceWarning)
            gc.collect()  # the loop ended before the connections that Kopf had closed, whatever test comes next
    assert ended == []


def until(condition: Callable[[], object], seconds: float = 20) -> None:
    """Wait for the operator's threads."""
    done = threading.Event()
    for _ in range(int(seconds / 0.02)):
        if condition():
            return
        done.wait(0.02)
    raise AssertionError("it did not come")
