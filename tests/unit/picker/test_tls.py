import asyncio
import datetime as dt
import ssl

from promptgroup_picker import tls
from promptgroup_router.feed.certificate_feed import server_context
from support.wire import run

NOW = dt.datetime(2026, 1, 1, tzinfo=dt.UTC)


def test_gateways_agree_on_http2_with_a_certificate_that_nobody_issued():
    async def check():
        pem = tls.self_signed(dt.datetime.now(dt.UTC))
        context = server_context(pem, pem, None, protocol=tls.HTTP2)
        server = await asyncio.start_server(lambda _, writer: writer.close(), "127.0.0.1", 0, ssl=context)
        client = ssl.SSLContext(ssl.PROTOCOL_TLS_CLIENT)
        client.check_hostname, client.verify_mode = False, ssl.CERT_NONE
        client.set_alpn_protocols(["http/1.1", "h2"])
        reader, writer = await asyncio.open_connection(*server.sockets[0].getsockname(), ssl=client)
        assert writer.get_extra_info("ssl_object").selected_alpn_protocol() == "h2"
        await reader.read()
        writer.transport.abort()
        server.close()

    run(check())


def test_each_key_is_new():
    assert tls.self_signed(NOW) != tls.self_signed(NOW)
