import asyncio
import contextlib

from promptgroup_picker import pool as module
from promptgroup_picker.extproc.conformance import Pool
from promptgroup_picker.pool import PoolFeed
from promptgroup_router.feed.kube_api import KubeApi
from support.fakeengine import until
from support.fakekube import fake_kube
from support.wire import run


def test_a_pool_is_followed_and_kept_while_it_cannot_be_read(tmp_path, monkeypatch, caplog):
    monkeypatch.setattr(module, "SECONDS", 0.01)

    async def check():
        pool, read = Pool(), asyncio.Event()
        async with fake_kube(tmp_path) as kube:
            task = asyncio.ensure_future(PoolFeed(KubeApi(kube.server()), "chat", "primary", pool, read.set).run())
            try:
                await until(lambda: "cannot be read" in caplog.text, "a warning: there is no such pool")
                assert not read.is_set()
                kube.put_pool("chat", "primary", "10.0.0.1:3000")
                await read.wait()
                assert [each.address for each in pool.members] == ["10.0.0.1:3000"]
                assert "/api/v1/namespaces/chat/pods?labelSelector=app%3Dprimary" in kube.seen
                kube.put_pool("chat", "primary", "10.0.0.1:3000", "10.0.0.2:3000")
                await until(lambda: len(pool.members) == 2, "the second pod")
                caplog.clear()
                kube.objects = {path: {} for path in kube.objects}
                await until(lambda: "cannot be read" in caplog.text, "a warning: it is no pool")
                assert len(pool.members) == 2
            finally:
                task.cancel()
                with contextlib.suppress(asyncio.CancelledError):
                    await task

    run(check())
