"""An issuer of tokens: its keys, what it signs with them, and a server that publishes them over HTTPS."""

import asyncio
import contextlib
import json
import ssl
from collections.abc import AsyncIterator
from functools import cache
from pathlib import Path
from typing import Any

import jwt
from cryptography.hazmat.primitives.asymmetric import ec, rsa

from promptgroup_contract.access import Access, AccessType
from support.fakekube import certificate

NOW = 1_800_000_000
CLAIMS = {"iss": "https://issuer.example", "aud": "llm", "sub": "team-a", "exp": NOW + 600}


@cache
def private_key(name: str, kind: str = "RSA") -> Any:
    return rsa.generate_private_key(65537, 2048) if kind == "RSA" else ec.generate_private_key(ec.SECP256R1())


def jwk(name: str, kind: str = "RSA") -> dict[str, Any]:
    algorithm = jwt.algorithms.RSAAlgorithm if kind == "RSA" else jwt.algorithms.ECAlgorithm
    shown = json.loads(algorithm.to_jwk(private_key(name, kind).public_key()))
    shown.pop("key_ops", None)
    return shown | {"kid": name, "use": "sig"}


def jwks(*names: str, kind: str = "RSA") -> bytes:
    return json.dumps({"keys": [jwk(name, kind) for name in names]}).encode()


def token(name: str = "one", kind: str = "RSA", headers: dict[str, Any] | None = None, **claims: Any) -> bytes:
    told = {key: value for key, value in (CLAIMS | claims).items() if value is not None}
    algorithm = "RS256" if kind == "RSA" else "ES256"
    return jwt.encode(told, private_key(name, kind), algorithm, {"kid": name} | (headers or {})).encode()


def by_token(uri: str = "https://issuer.example/keys", **fields: Any) -> Access:
    values: dict[str, Any] = {
        "issuer": CLAIMS["iss"],
        "audiences": ("llm",),
        "algorithms": ("RS256", "ES256"),
        "jwks_uri": uri,
        "name_claim": "sub",
    }
    return Access(AccessType.JWT, **(values | fields))


class Publisher:
    """Publishes an issuer's keys."""

    def __init__(self, folder: Path) -> None:
        self.document = jwks("one")
        self.status = 200
        self.reads = 0
        self.port = 0
        self.ca = folder / "issuer-ca.pem"
        self.hangs = asyncio.Event()
        """Cleared: it answers nothing until this is set."""
        self.hangs.set()

    @property
    def uri(self) -> str:
        return f"https://127.0.0.1:{self.port}/keys"

    async def serve(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        with contextlib.suppress(ConnectionError, asyncio.IncompleteReadError, asyncio.CancelledError):
            await reader.readuntil(b"\r\n\r\n")
            self.reads += 1
            await self.hangs.wait()
            writer.write(
                b"HTTP/1.1 %d Whatever\r\ncontent-length: %d\r\n\r\n%b"
                % (self.status, len(self.document), self.document)
            )
            await writer.drain()
        writer.transport.abort()


@contextlib.asynccontextmanager
async def publishing(folder: Path) -> AsyncIterator[Publisher]:
    issuer = Publisher(folder)
    chain, key = certificate()
    (folder / "issuer-key.pem").write_bytes(key)
    issuer.ca.write_bytes(chain)
    context = ssl.create_default_context(ssl.Purpose.CLIENT_AUTH)
    context.load_cert_chain(issuer.ca, folder / "issuer-key.pem")
    server = await asyncio.start_server(issuer.serve, "127.0.0.1", 0, ssl=context)
    issuer.port = server.sockets[0].getsockname()[1]
    try:
        yield issuer
    finally:
        issuer.hangs.set()
        server.close()
