import ssl
import stat
from pathlib import Path

from cryptography import x509

from promptgroup_local.cluster.certs import Authority, Pair


def test_a_server_is_trusted_by_its_names_and_a_client_known_by_its_subject(tmp_path: Path) -> None:
    authority = Authority(tmp_path)
    server = authority.server("apiserver", ["localhost"], ["127.0.0.1"])
    client = authority.client("admin", "me", "system:masters")
    subject = handshake(authority.file, server, client, "127.0.0.1")
    assert (("commonName", "me"),) in subject
    assert (("organizationName", "system:masters"),) in subject


def test_keys_are_readable_by_their_owner_only(tmp_path: Path) -> None:
    authority = Authority(tmp_path)
    authority.client("admin", "me")
    authority.signing_key("tokens")
    keys = list(tmp_path.glob("*.key"))
    assert len(keys) == 3
    assert {stat.S_IMODE(key.stat().st_mode) for key in keys} == {0o600}


def test_a_client_certificate_serves_nobody(tmp_path: Path) -> None:
    certificate = x509.load_pem_x509_certificate(Authority(tmp_path).client("a", "me").certificate.read_bytes())
    usage = certificate.extensions.get_extension_for_class(x509.ExtendedKeyUsage).value
    assert list(usage) == [x509.ExtendedKeyUsageOID.CLIENT_AUTH]
    assert certificate.extensions.get_extension_for_class(x509.KeyUsage).value.key_cert_sign is False


def handshake(ca: Path, server: Pair, client: Pair, name: str) -> tuple:
    """TLS with client authentication in memory; the client's subject as the server sees it."""
    serving = ssl.create_default_context(ssl.Purpose.CLIENT_AUTH, cafile=ca)
    serving.load_cert_chain(server.certificate, server.key)
    serving.verify_mode = ssl.CERT_REQUIRED
    asking = ssl.create_default_context(cafile=ca)
    asking.load_cert_chain(client.certificate, client.key)
    to_server, to_client = ssl.MemoryBIO(), ssl.MemoryBIO()
    ends = [
        asking.wrap_bio(to_client, to_server, server_hostname=name),
        serving.wrap_bio(to_server, to_client, server_side=True),
    ]
    for _ in range(4):
        for end in ends:
            try:
                end.do_handshake()
            except ssl.SSLWantReadError:
                continue
    return ends[1].getpeercert()["subject"]
