import asyncio
import contextlib
import ssl

import pytest

from promptgroup_picker.server import Picker
from promptgroup_router.feed import certificate_feed, table_file
from promptgroup_router.proxy.tls_port import ADDRESS_SHARE
from support.fakeengine import until
from support.gateway import picking, settings_of
from support.http2floods import BEGINNING
from support.tlsfiles import TlsFiles
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


def test_a_certificate_that_was_renewed_is_shown_to_gateways_that_come_later(tmp_path, monkeypatch):
    monkeypatch.setattr(certificate_feed, "POLL_SECONDS", 0.02)
    files = TlsFiles(tmp_path / "tls")

    async def shown(port: int) -> bytes:
        trusting = ssl.SSLContext(ssl.PROTOCOL_TLS_CLIENT)
        trusting.check_hostname, trusting.verify_mode = False, ssl.CERT_NONE
        trusting.set_alpn_protocols(["http/1.1", "h2"])
        _, gateway = await asyncio.open_connection("127.0.0.1", port, ssl=trusting)
        found = gateway.get_extra_info("ssl_object")
        assert found.selected_alpn_protocol() == "h2"
        gateway.transport.abort()
        return found.getpeercert(binary_form=True)

    def written() -> bytes:
        return ssl.PEM_cert_to_DER_cert(files.cert.read_text())

    async def check():
        tls = {"plaintext": False, "tls_cert_file": files.cert, "tls_key_file": files.key}
        async with picking(tmp_path, table_of("10.0.0.1:8000"), **tls) as picker:
            before = picker._tls
            assert await shown(picker.port) == written()
            files.replace()
            await until(lambda: picker._tls is not before, "the new certificate")
            renewed = written()
            assert await shown(picker.port) == renewed
            files.cert.unlink()
            errors = picker.core.state.metrics.key_errors
            await until(lambda: errors.values.get(("certificate",)), "the failure to be counted")
            assert await shown(picker.port) == renewed

    run(check())


@pytest.mark.parametrize("own_certificate", [True, False])
def test_a_picker_takes_only_gateways_with_a_certificate_of_the_authorities_that_it_is_given(
    own_certificate, tmp_path, monkeypatch
):
    monkeypatch.setattr(certificate_feed, "POLL_SECONDS", 0.02)
    files, gateway, stranger = (TlsFiles(tmp_path / name) for name in ("picker", "gateway", "stranger"))
    authorities = tmp_path / "ca.crt"
    authorities.write_bytes(gateway.cert.read_bytes())
    tls = {"plaintext": False, "tls_client_ca": authorities}
    if not own_certificate:
        tls |= {"tls_cert_file": files.cert, "tls_key_file": files.key}

    async def answered(port: int, shown: TlsFiles | None) -> bool:
        trusting = ssl.SSLContext(ssl.PROTOCOL_TLS_CLIENT)
        trusting.check_hostname, trusting.verify_mode = False, ssl.CERT_NONE
        if shown is not None:
            trusting.load_cert_chain(shown.cert, shown.key)
        writer = None
        try:
            reader, writer = await asyncio.open_connection("127.0.0.1", port, ssl=trusting)
            writer.write(BEGINNING)
            return bool(await reader.read(9))
        except (ssl.SSLError, ConnectionError):
            return False
        finally:
            if writer is not None:
                writer.transport.abort()

    async def check():
        async with picking(tmp_path, table_of("10.0.0.1:8000"), **tls) as picker:
            assert await answered(picker.port, gateway)
            assert not await answered(picker.port, stranger)
            assert not await answered(picker.port, None)
            before = picker._tls
            authorities.write_bytes(stranger.cert.read_bytes())
            await until(lambda: picker._tls is not before, "the other authority")
            assert await answered(picker.port, stranger)
            assert not await answered(picker.port, gateway)

    run(check())


def test_a_picker_does_not_start_with_a_certificate_that_cannot_be_read(tmp_path):
    async def check():
        missing = tmp_path / "none.pem"
        with pytest.raises(OSError, match=r"none\.pem cannot be read"):
            async with picking(
                tmp_path, table_of("10.0.0.1:8000"), plaintext=False, tls_cert_file=missing, tls_key_file=missing
            ):
                pass

    run(check())
