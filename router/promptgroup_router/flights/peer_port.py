"""The port on which routers request answers from each other: TLS 1.3, where both sides prove that they have the key.

From the secret that routers of a namespace share, each derives the same Ed25519 key (RFC 8032) and the same
certificate, and trusts no other. So there is nothing to issue, to renew or to revoke beside the secret. TLS itself
protects the confidentiality, integrity and order of the data, and prevents replay.
"""

import asyncio
import datetime as dt
import logging
import ssl
from collections.abc import Callable
from hashlib import blake2s

from cryptography import x509
from cryptography.hazmat.primitives.asymmetric.ed25519 import Ed25519PrivateKey
from cryptography.hazmat.primitives.serialization import Encoding, NoEncryption, PrivateFormat

from promptgroup_router.base.authorities import BundleRef, client_context
from promptgroup_router.base.logs import fields
from promptgroup_router.feed.certificate_feed import server_context, show
from promptgroup_router.proxy.upstream import Verification

log = logging.getLogger("promptgroup.peers")

NAME = "router.promptgroup.internal"
"""Name of all routers in their certificate: their addresses are those of pods, and change."""
PEER = Verification(BundleRef("", "", "", ""), NAME)
"""The rule by which a router verifies another one: by the context that its `PeerPort` has."""
HANDSHAKE_SECONDS = 0.25
"""Time limit for a handshake between routers, which are close; then the router that got the request computes it."""
BACKLOG = 4096

_PURPOSE = b"pg-tls"
_BEGIN, _END = dt.datetime(2000, 1, 1, tzinfo=dt.UTC), dt.datetime(9999, 12, 31, 23, 59, 59, tzinfo=dt.UTC)
"""The certificate does not expire: it is valid as long as the secret is used (RFC 5280, section 4.1.2.5)."""


class PeerPort:
    """The port, and the TLS contexts by which routers authenticate each other."""

    def __init__(self, host: str) -> None:
        """Store the address, without listening yet."""
        self._host = host
        self._port = 0
        self._accept: Callable[[], asyncio.Protocol] = asyncio.Protocol
        self._towards: ssl.SSLContext | None = None
        self._changing = asyncio.Lock()
        self._listening: set[asyncio.Task[None]] = set()
        self._server: asyncio.Server | None = None

    @property
    def is_open(self) -> bool:
        """True if other routers can connect."""
        return self._server is not None and self._server.is_serving()

    def context(self, _ref: BundleRef) -> ssl.SSLContext | None:
        """Return the TLS context for connections to other routers; None without a secret, so that none are made."""
        return self._towards

    def serve(self, port: int, accept: Callable[[], asyncio.Protocol]) -> None:
        """Listen once there is a secret.

        Args:
            port: its number.
            accept: returns the protocol that handles a connection.
        """
        self._port, self._accept = port, accept

    def rekey(self, secret: bytes) -> None:
        """Authenticate this router and others by another secret from now on."""
        certificate, key = identity(secret)
        context = client_context(certificate)
        listening = server_context(certificate, key, client_ca=certificate)
        show(context, certificate, key)
        for ssl_context in (context, listening):
            ssl_context.minimum_version = ssl.TLSVersion.TLSv1_3
        self._towards = context
        task = asyncio.get_running_loop().create_task(self._listen(listening))
        self._listening.add(task)
        task.add_done_callback(self._listening.discard)

    async def _listen(self, context: ssl.SSLContext) -> None:
        """Replace the listener of an earlier secret, whose connections end when they are idle."""
        async with self._changing:
            self.close()
            try:
                self._server = await asyncio.get_running_loop().create_server(
                    self._accept,
                    self._host,
                    self._port,
                    backlog=BACKLOG,
                    ssl=context,
                    ssl_handshake_timeout=HANDSHAKE_SECONDS * 4,
                    ssl_shutdown_timeout=HANDSHAKE_SECONDS * 4,
                )
            except OSError as error:
                # each router then computes answers that other routers may have computed
                log.warning("no port for other routers' requests", extra=fields(port=self._port, problem=error))

    def close(self) -> None:
        """Stop listening."""
        if self._server is not None:
            self._server.close()
            self._server = None


def identity(secret: bytes) -> tuple[bytes, bytes]:
    """Return the certificate and the key, in PEM, that all routers with a secret have."""
    key = Ed25519PrivateKey.from_private_bytes(blake2s(secret, person=_PURPOSE).digest())
    name = x509.Name([x509.NameAttribute(x509.NameOID.COMMON_NAME, NAME)])
    certificate = (
        x509.CertificateBuilder()
        .subject_name(name)
        .issuer_name(name)
        .public_key(key.public_key())
        .serial_number(1)
        .not_valid_before(_BEGIN)
        .not_valid_after(_END)
        .add_extension(x509.SubjectAlternativeName([x509.DNSName(NAME)]), critical=False)
        .add_extension(x509.BasicConstraints(ca=True, path_length=0), critical=True)
        .sign(key, algorithm=None)
    )
    return certificate.public_bytes(Encoding.PEM), key.private_bytes(Encoding.PEM, PrivateFormat.PKCS8, NoEncryption())
