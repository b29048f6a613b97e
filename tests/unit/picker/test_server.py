import asyncio
import contextlib
import ssl

from promptgroup_picker.server import Picker
from promptgroup_router.feed import table_file
from promptgroup_router.proxy.tls_port import ADDRESS_SHARE
from support.fakeengine import until
from support.gateway import settings_of
from support.wire import run, started, table_of


def test_handshakes_of_one_address_do_not_take_the_places_of_others(tmp_path):
    async def check():
        path = tmp_path / "table.json"
        table_file.write(path, table_of("10.0.0.1:8000"))
        settings = settings_of(path, plaintext=False, max_connections=2 * ADDRESS_SHARE)
        async with started(Picker(settings)) as picker, contextlib.AsyncExitStack() as stack:
            silent = []
            for _ in range(5):
                with contextlib.suppress(ConnectionError):
                    silent.append(await asyncio.open_connection("127.0.0.1", picker.port))
                    stack.callback(silent[-1][1].transport.abort)
            refused = picker.core.state.metrics.handshakes_refused
            await until(lambda: refused.values[()] == 3, "those above a quarter to be refused")
            trusting = ssl.SSLContext(ssl.PROTOCOL_TLS_CLIENT)
            trusting.check_hostname, trusting.verify_mode = False, ssl.CERT_NONE
            _, gateway = await asyncio.open_connection(
                "127.0.0.1", picker.port, ssl=trusting, local_addr=("127.0.0.2", 0)
            )
            gateway.transport.abort()

    run(check())
