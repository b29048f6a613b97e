"""A Kubernetes API server that speaks list, watch and get over HTTPS, and fails when a test asks it to."""

import asyncio
import contextlib
import datetime as dt
import ipaddress
import ssl
from collections.abc import AsyncIterator
from pathlib import Path
from urllib.parse import parse_qs

import orjson
from cryptography import x509
from cryptography.hazmat.primitives import hashes, serialization
from cryptography.hazmat.primitives.asymmetric import ec
from cryptography.x509.oid import NameOID

from promptgroup_contract.encoding import encode_group
from promptgroup_contract.table import Group
from promptgroup_router.base.core_settings import ApiServerAddress
from promptgroup_router.http11.reader import HttpRequest, RequestReader
from support.fakeengine import until

ROUTES = "/apis/promptgroup.dev/v1alpha1/namespaces/{}/promptroutes"


class FakeKube:
    """Objects by path; every change is an event for the watches of its path."""

    def __init__(self, folder: Path) -> None:
        self.folder = folder
        self.port = 0
        self.token = "token-1"
        self.objects: dict[str, dict[str, dict]] = {}
        self.version = 100
        self.status = 0
        """Answered to everything, when not 0."""
        self.late: dict[str, asyncio.Event] = {}
        """Namespaces that are answered only once their event is set."""
        self.refused = "none"
        """A namespace that is answered 403."""
        self.expired = False
        """Whether watches begin with 410 Gone, once."""
        self.watch_status = 0
        """Answered to watches, once, when not 0."""
        self.end_watches_at_once = False
        self.seen: list[str] = []
        self.watches: set[tuple[str, asyncio.StreamWriter]] = set()

    # --- What a test does -----------------------------------------------------------------------------------

    def put(self, group: Group) -> None:
        """Create or change a PromptRoute."""
        self.put_spec(group.namespace, group.name, encode_group(group))

    def put_spec(self, namespace: str, name: str, spec: object) -> None:
        path = ROUTES.format(namespace)
        known = self.objects.setdefault(path, {})
        kind = "MODIFIED" if name in known else "ADDED"
        self.version += 1
        known[name] = {"metadata": {"name": name, "resourceVersion": str(self.version)}, "spec": spec}
        self.tell(path, {"type": kind, "object": known[name]})

    def delete(self, namespace: str, name: str) -> None:
        path = ROUTES.format(namespace)
        gone = self.objects[path].pop(name)
        self.version += 1
        gone["metadata"]["resourceVersion"] = str(self.version)
        self.tell(path, {"type": "DELETED", "object": gone})

    def put_data(self, namespace: str, plural: str, name: str, data: dict[str, str]) -> None:
        """A ConfigMap or Secret."""
        self.objects[f"/api/v1/namespaces/{namespace}/{plural}/{name}"] = {"data": data}

    def put_pool(self, namespace: str, name: str, *addresses: str) -> None:
        """An InferencePool of pods that are ready: each host has each port."""
        hosts, ports = (sorted({each.rpartition(":")[at] for each in addresses}) for at in (0, 2))
        ready = [{"type": "Ready", "status": "True"}]
        pods = [{"metadata": {}, "status": {"podIP": host, "conditions": ready}} for host in hosts]
        targets = [{"number": int(port)} for port in ports]
        spec = {"selector": {"matchLabels": {"app": name}}, "targetPorts": targets}
        group = f"/apis/inference.networking.k8s.io/v1/namespaces/{namespace}"
        self.objects[f"{group}/inferencepools/{name}"] = {"spec": spec}
        self.objects[f"/api/v1/namespaces/{namespace}/pods"] = {"items": pods}

    def bookmark(self, namespace: str) -> None:
        self.version += 1
        self.tell(
            ROUTES.format(namespace),
            {"type": "BOOKMARK", "object": {"metadata": {"resourceVersion": str(self.version)}}},
        )

    def tell(self, path: str, event: object) -> None:
        line = orjson.dumps(event) + b"\n"
        # cut, so that an event spans several reads
        for part in (line[:7], line[7:]):
            for watched, writer in self.watches:
                if watched == path:
                    writer.write(b"%x\r\n%b\r\n" % (len(part), part))

    def cut_watches(self) -> None:
        for _, writer in self.watches:
            writer.transport.abort()

    async def watched(self, count: int = 1) -> None:
        """Wait until so many watches are open."""
        await until(lambda: len(self.watches) == count, f"{count} watches")

    def server(self, *namespaces: str) -> ApiServerAddress:
        return ApiServerAddress("127.0.0.1", self.port, self.folder, namespaces)

    # --- What it does -----------------------------------------------------------------------------------------

    async def serve(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        requests = RequestReader(max_body=1000)
        try:
            while data := await reader.read(65536):
                requests.feed(data)
                if (request := requests.next()) is not None:
                    await self.answer(request, reader, writer)
                    break
        except ConnectionError:
            pass
        finally:
            writer.transport.abort()
            with contextlib.suppress(ConnectionError, ssl.SSLError):
                await writer.wait_closed()

    async def answer(self, request: HttpRequest, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        path, query = request.head.path.decode(), parse_qs(request.head.query.decode())
        self.seen.append(f"{path}?{request.head.query.decode()}" if query else path)
        status, body = self.status or 200, b""
        if request.head.fields.get(b"authorization") != f"Bearer {self.token}".encode():
            status = 401
        for namespace, event in self.late.items():
            if f"/{namespace}/" in path:
                await event.wait()
        if f"/{self.refused}/" in path:
            status = 403
        if "watch" in query and self.watch_status:
            status, self.watch_status = self.watch_status, 0
        if path not in self.objects:
            status = 404 if status == 200 and not path.endswith("/promptroutes") else status
        if status != 200:
            body = orjson.dumps({"kind": "Status", "code": status, "message": f"refused with {status}"})
        elif "watch" in query:
            await self.watch(path, reader, writer)
            return
        elif path.endswith("/promptroutes"):
            items = list(self.objects.get(path, {}).values())
            begin, limit = int(query.get("continue", ["0"])[0]), int(query.get("limit", ["500"])[0])
            rest = {"continue": str(begin + limit)} if begin + limit < len(items) else {}
            metadata = {"resourceVersion": str(self.version), **rest}
            body = orjson.dumps({"metadata": metadata, "items": items[begin : begin + limit]})
        else:
            body = orjson.dumps(self.objects[path])
        writer.write(b"HTTP/1.1 %d Whatever\r\nContent-Length: %d\r\n\r\n%b" % (status, len(body), body))
        await writer.drain()

    async def watch(self, path: str, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        writer.write(b"HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\n")
        key = (path, writer)
        self.watches.add(key)
        if self.expired:
            self.expired = False
            self.tell(path, {"type": "ERROR", "object": {"kind": "Status", "code": 410}})
        try:
            if not self.end_watches_at_once:
                await reader.read(1)
            writer.write(b"0\r\n\r\n")
            await writer.drain()
        finally:
            self.watches.discard(key)


@contextlib.asynccontextmanager
async def fake_kube(folder: Path) -> AsyncIterator[FakeKube]:
    kube = FakeKube(folder)
    signed, key = certificate()
    (folder / "ca.crt").write_bytes(signed)
    (folder / "tls.pem").write_bytes(key + signed)
    (folder / "token").write_text(kube.token)
    (folder / "namespace").write_text("chat")
    context = ssl.create_default_context(ssl.Purpose.CLIENT_AUTH)
    context.load_cert_chain(folder / "tls.pem")
    server = await asyncio.start_server(kube.serve, "127.0.0.1", 0, ssl=context)
    kube.port = server.sockets[0].getsockname()[1]
    try:
        yield kube
    finally:
        server.close()
        kube.cut_watches()
        await until(lambda: not kube.watches, "the watches to end")


def certificate() -> tuple[bytes, bytes]:
    """A certificate for 127.0.0.1 that is its own authority, and its key."""
    key = ec.generate_private_key(ec.SECP256R1())
    name = x509.Name([x509.NameAttribute(NameOID.COMMON_NAME, "fake-kube")])
    now = dt.datetime.now(dt.UTC)
    certificate = (
        x509.CertificateBuilder()
        .subject_name(name)
        .issuer_name(name)
        .public_key(key.public_key())
        .serial_number(x509.random_serial_number())
        .not_valid_before(now - dt.timedelta(minutes=5))
        .not_valid_after(now + dt.timedelta(hours=1))
        .add_extension(x509.SubjectAlternativeName([x509.IPAddress(ipaddress.ip_address("127.0.0.1"))]), critical=False)
        .add_extension(x509.BasicConstraints(ca=True, path_length=None), critical=True)
        # two authorities of one name, as before and after a renewal, are told apart by their keys
        .add_extension(x509.SubjectKeyIdentifier.from_public_key(key.public_key()), critical=False)
        .add_extension(x509.AuthorityKeyIdentifier.from_issuer_public_key(key.public_key()), critical=False)
        .sign(key, hashes.SHA256())
    )
    form = serialization.PrivateFormat.PKCS8, serialization.NoEncryption()
    return (
        certificate.public_bytes(serialization.Encoding.PEM),
        key.private_bytes(serialization.Encoding.PEM, *form),
    )
