import asyncio
import ssl

import pytest

from promptgroup_router.feed import certificate_feed
from promptgroup_router.feed.certificate_feed import CertificateError, CertificateFeed, CertificateFiles, server_context
from support.tlsfiles import TlsFiles


def feed_of(files, client_ca=None):
    installed, failures = [], []

    async def install(context):
        installed.append(context)

    return CertificateFeed(CertificateFiles(files.cert, files.key, client_ca), install, lambda: failures.append(1)), (
        installed,
        failures,
    )


def test_what_has_changed_is_installed_and_nothing_else(tmp_path):
    files = TlsFiles(tmp_path / "server")
    feed, (installed, failures) = feed_of(files)
    assert feed.load().minimum_version is ssl.TLSVersion.TLSv1_2
    asyncio.run(feed.look())
    assert installed == []
    files.replace()
    asyncio.run(feed.look())
    asyncio.run(feed.look())
    assert len(installed) == 1
    assert failures == []


def test_a_pair_that_does_not_match_leaves_the_last_good_one(tmp_path, caplog):
    """Such as a Secret that is read while it is replaced."""
    files, other = TlsFiles(tmp_path / "server"), TlsFiles(tmp_path / "other")
    feed, (installed, failures) = feed_of(files)
    feed.load()
    key = files.key.read_bytes()
    files.key.write_bytes(other.key.read_bytes())
    asyncio.run(feed.look())
    asyncio.run(feed.look())
    assert (installed, len(failures)) == ([], 1)
    files.key.unlink()
    asyncio.run(feed.look())
    assert (installed, len(failures)) == ([], 2)
    files.key.write_bytes(key)
    asyncio.run(feed.look())
    assert installed == []
    files.replace()
    asyncio.run(feed.look())
    assert len(installed) == 1
    assert key.decode() not in caplog.text


@pytest.mark.parametrize("part", [0, 1, 2])
def test_garbage_is_refused(tmp_path, part):
    files = TlsFiles(tmp_path / "server")
    parts = [files.cert.read_bytes(), files.key.read_bytes(), files.cert.read_bytes()]
    for bad in (b"", b"garbage", b"\xff\x00", b"-----BEGIN CERTIFICATE-----\nAA==\n-----END CERTIFICATE-----\n"):
        with pytest.raises(CertificateError):
            server_context(*parts[:part], bad, *parts[part + 1 :])
    assert server_context(*parts).verify_mode is ssl.CERT_REQUIRED


def test_files_that_are_missing_or_too_large(tmp_path, monkeypatch):
    files = TlsFiles(tmp_path / "server")
    feed, _ = feed_of(files, tmp_path / "none")
    with pytest.raises(CertificateError, match="none cannot be read: No such file"):
        feed.load()
    monkeypatch.setattr(certificate_feed, "MAX_BYTES", 10)
    feed, _ = feed_of(files)
    with pytest.raises(CertificateError, match="more than 10 bytes"):
        feed.load()
