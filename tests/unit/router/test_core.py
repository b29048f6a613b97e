from support.tables import table
from support.wire import routing, run


def test_a_part_that_ends_is_noticed(tmp_path, caplog):
    async def check():
        async with routing(tmp_path, table()) as router:
            router.core._feed._look_in_slices = lambda: 1 / 0
            router.core.reload()
            await router.core.failure()
            assert "a part of the process ended" in caplog.text

    run(check())
