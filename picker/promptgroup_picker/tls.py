"""The TLS of the port for gateways, where no certificate is given: the picker makes one for itself.

Gateways do not verify a picker's certificate unless they are configured to, so the reference picker has a self-signed
one, too. It protects against passive eavesdropping only.
"""

import datetime as dt

from cryptography import x509
from cryptography.hazmat.primitives import hashes, serialization
from cryptography.hazmat.primitives.asymmetric import ec
from cryptography.x509.oid import NameOID

NAME = "promptgroup-picker"
HTTP2 = "h2"
"""The protocol of the port, by its name in TLS (ALPN)."""
VALID = dt.timedelta(days=3650)
"""Longer than any process runs: a new one makes a new certificate."""


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
