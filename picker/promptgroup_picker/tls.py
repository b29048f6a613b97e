"""The TLS of the port for gateways: a certificate from files, or one that the picker makes for itself.

Gateways do not verify a picker's certificate unless they are told to, so that one without an issuer is what the
reference picker has, too. It keeps out those who only listen.
"""

import datetime as dt
import ssl
import tempfile
from pathlib import Path

from cryptography import x509
from cryptography.hazmat.primitives import hashes, serialization
from cryptography.hazmat.primitives.asymmetric import ec
from cryptography.x509.oid import NameOID

NAME = "promptgroup-picker"
VALID = dt.timedelta(days=3650)
"""Longer than any process runs: a new one makes a new certificate."""


def context(cert_file: Path | None, key_file: Path | None) -> ssl.SSLContext:
    """Return the context of the port.

    Raises:
        OSError: a file cannot be read, or is no certificate or key.
    """
    found = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
    found.minimum_version = ssl.TLSVersion.TLSv1_2
    found.set_alpn_protocols(["h2"])
    if cert_file is not None:
        found.load_cert_chain(cert_file, key_file)
        return found
    with tempfile.TemporaryDirectory() as folder:
        path = Path(folder, "picker.pem")
        path.touch(0o600)
        path.write_bytes(self_signed(dt.datetime.now(dt.UTC)))
        found.load_cert_chain(path)
    return found


def self_signed(now: dt.datetime) -> bytes:
    """Return a new key and its certificate, as PEM."""
    key = ec.generate_private_key(ec.SECP256R1())
    name = x509.Name([x509.NameAttribute(NameOID.COMMON_NAME, NAME)])
    certificate = (
        x509.CertificateBuilder()
        .subject_name(name)
        .issuer_name(name)
        .public_key(key.public_key())
        .serial_number(x509.random_serial_number())
        .not_valid_before(now - dt.timedelta(hours=1))
        .not_valid_after(now + VALID)
        .add_extension(x509.SubjectAlternativeName([x509.DNSName(NAME)]), critical=False)
        .sign(key, hashes.SHA256())
    )
    private = key.private_bytes(
        serialization.Encoding.PEM, serialization.PrivateFormat.PKCS8, serialization.NoEncryption()
    )
    return private + certificate.public_bytes(serialization.Encoding.PEM)
