import asyncio
import os
import socket

from promptgroup_router.feed import table_file
from promptgroup_router.server import Router, Sockets
from promptgroup_router.workers import worker
from promptgroup_router.workers.worker import VARIABLE, Inheritance, inherited
from support.wire import ask, get, run, settings_for, table_of

GIVEN = Inheritance(place=1, workers=2, requests=(5, 6), admin=7, exchange=8, key=9, peers=(4001, 4002))


def test_what_is_inherited_survives_the_environment():
    assert inherited({VARIABLE: GIVEN.encode()}) == GIVEN
    assert GIVEN.descriptors() == (5, 6, 7, 8, 9)
    assert inherited({}) is None


def test_descriptors_that_are_not_given_are_left_out():
    given = Inheritance(place=0, workers=2, requests=(5,), admin=7, exchange=None, key=None, peers=())
    assert given.descriptors() == (5, 7)


def test_a_worker_accepts_where_it_is_told_to_and_leaves_when_nobody_is_there_to_tell_it(tmp_path):
    async def check():
        table_file.write(tmp_path / "table.json", table_of())
        mine, others, admin = (socket.create_server(("127.0.0.1", 0)) for _ in range(3))
        ports = [each.getsockname()[1] for each in (mine, others)]
        router = Router(settings_for(tmp_path / "table.json"), Sockets([mine.dup(), others.dup()], admin, None))
        await router.start()
        orders, left = asyncio.StreamReader(), asyncio.Event()
        obeying = asyncio.ensure_future(worker._obey(router, orders, left.set))
        for line, serving in ((b"0\n", {0}), (b"0 1\n", {0, 1}), (b"1\n", {1})):
            orders.feed_data(line)
            while set(router._accepting) != serving:  # noqa: ASYNC110
                await asyncio.sleep(0)
            for number in serving:
                assert (await ask(ports[number], get("/v1/models"))).status == 200
        orders.feed_data(b"\n")
        while router._accepting:  # noqa: ASYNC110
            await asyncio.sleep(0)
        assert router._clients.draining  # its clients are told to connect again
        orders.feed_eof()
        await left.wait()
        await obeying
        await router.stop()
        for each in (mine, others):
            each.close()

    run(check())


def test_the_last_page_goes_to_standard_output_and_nobody_needs_to_be_there(capfd):
    worker._leave_behind("a page\n")
    assert capfd.readouterr().out == "a page\n"
    reader, writer = os.pipe()
    os.close(reader)
    kept = os.dup(1)
    try:
        os.dup2(writer, 1)
        worker._leave_behind("a page\n")
    finally:
        os.dup2(kept, 1)
        os.close(kept)
        os.close(writer)
