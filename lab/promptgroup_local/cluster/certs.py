"""The cluster's certificate authority and its certificates: short-lived on purpose, only in the state folder."""

import datetime as dt
import ipaddress
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

from cryptography import x509
from cryptography.hazmat.primitives import hashes, serialization
from cryptography.hazmat.primitives.asymmetric import ec
from cryptography.x509.oid import ExtendedKeyUsageOID, NameOID

LIFETIME = dt.timedelta(days=365)
"""Lifetime of certificates: a trial cluster is not used longer."""


@dataclass(frozen=True, slots=True)
class Pair:
    """Files of a certificate and its key, PEM."""

    certificate: Path
    key: Path


class Authority:
    """Signs certificates into one folder."""

    def __init__(self, folder: Path) -> None:
        folder.mkdir(parents=True, exist_ok=True)
        self._folder = folder
        self._key = ec.generate_private_key(ec.SECP256R1())
        self._name = x509.Name([x509.NameAttribute(NameOID.COMMON_NAME, "promptgroup-local")])
        certificate = (
            self._builder(self._name, self._key)
            .add_extension(x509.BasicConstraints(ca=True, path_length=None), critical=True)
            .add_extension(_usage(signs=True), critical=True)
            .add_extension(x509.SubjectKeyIdentifier.from_public_key(self._key.public_key()), critical=False)
            .sign(self._key, hashes.SHA256())
        )
        self.file = self._write("ca", certificate, self._key).certificate

    def server(self, name: str, hosts: Sequence[str], addresses: Sequence[str]) -> Pair:
        """A serving certificate for host names and addresses."""
        names: list[x509.GeneralName] = [x509.DNSName(host) for host in hosts]
        names += [x509.IPAddress(ipaddress.ip_address(address)) for address in addresses]
        return self._issue(name, [(NameOID.COMMON_NAME, name)], x509.SubjectAlternativeName(names))

    def client(self, name: str, user: str, group: str | None = None) -> Pair:
        """A client certificate: user and group as the API server reads them from its subject."""
        subject = [(NameOID.COMMON_NAME, user)] + ([(NameOID.ORGANIZATION_NAME, group)] if group else [])
        return self._issue(name, subject, None)

    def signing_key(self, name: str) -> Path:
        """A key of its own, for service-account tokens."""
        path = self._folder / f"{name}.key"
        _private(path, ec.generate_private_key(ec.SECP256R1()))
        return path

    def _issue(
        self, name: str, subject: list[tuple[x509.ObjectIdentifier, str]], names: x509.SubjectAlternativeName | None
    ) -> Pair:
        key = ec.generate_private_key(ec.SECP256R1())
        builder = self._builder(x509.Name([x509.NameAttribute(oid, value) for oid, value in subject]), key)
        purpose = ExtendedKeyUsageOID.CLIENT_AUTH if names is None else ExtendedKeyUsageOID.SERVER_AUTH
        builder = builder.add_extension(x509.ExtendedKeyUsage([purpose]), critical=False)
        builder = builder.add_extension(_usage(signs=False), critical=True)
        issuer = x509.AuthorityKeyIdentifier.from_issuer_public_key(self._key.public_key())
        builder = builder.add_extension(issuer, critical=False)
        if names is not None:
            builder = builder.add_extension(names, critical=False)
        return self._write(name, builder.sign(self._key, hashes.SHA256()), key)

    def _builder(self, subject: x509.Name, key: ec.EllipticCurvePrivateKey) -> x509.CertificateBuilder:
        now = dt.datetime.now(dt.UTC)
        return (
            x509.CertificateBuilder()
            .subject_name(subject)
            .issuer_name(self._name)
            .public_key(key.public_key())
            .serial_number(x509.random_serial_number())
            .not_valid_before(now - dt.timedelta(minutes=5))
            .not_valid_after(now + LIFETIME)
        )

    def _write(self, name: str, certificate: x509.Certificate, key: ec.EllipticCurvePrivateKey) -> Pair:
        pair = Pair(self._folder / f"{name}.crt", self._folder / f"{name}.key")
        pair.certificate.write_bytes(certificate.public_bytes(serialization.Encoding.PEM))
        _private(pair.key, key)
        return pair


def _private(path: Path, key: ec.EllipticCurvePrivateKey) -> None:
    path.touch(mode=0o600)
    path.write_bytes(
        key.private_bytes(
            serialization.Encoding.PEM, serialization.PrivateFormat.TraditionalOpenSSL, serialization.NoEncryption()
        )
    )


def _usage(*, signs: bool) -> x509.KeyUsage:
    return x509.KeyUsage(
        digital_signature=True,
        content_commitment=False,
        key_encipherment=False,
        data_encipherment=False,
        key_agreement=False,
        key_cert_sign=signs,
        crl_sign=signs,
        encipher_only=False,
        decipher_only=False,
    )
