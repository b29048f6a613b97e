"""An authority of engines, the servers' contexts that it signs for, and the folder in which routers find its bundle."""

import ssl
from collections.abc import Mapping
from dataclasses import replace
from pathlib import Path
from typing import Any

from promptgroup_contract.engine_tls import CONFIG_MAP, EngineTls
from promptgroup_contract.table import RoutingTable
from promptgroup_local.cluster.certs import Authority, Pair
from support.tables import group, revision, slot, table

NAME = "engines.chat.svc"
BY_NAME = EngineTls(CONFIG_MAP, "engine-ca", "ca.crt", NAME)
BY_ADDRESS = BY_NAME._replace(server_name="")
TLS: Mapping[str, object] = {
    "secretName": "engine-tls",
    "caFrom": {"configMapKeyRef": {"name": BY_NAME.name, "key": BY_NAME.key}},
    "serverName": NAME,
}
"""`spec.engine.tls` of a group whose certificate and authorities are the objects of this module."""


class EngineCerts:
    """One authority, and certificates of engines at 127.0.0.1 or named NAME."""

    def __init__(self, folder: Path, *, hosts: tuple[str, ...] = (NAME,), addresses: tuple[str, ...] = ()) -> None:
        self._authority = Authority(folder)
        self.ca = self._authority.file.read_text()
        self.pair: Pair = self._authority.server("engine", hosts, addresses)

    def server(self) -> ssl.SSLContext:
        """What an engine serves with."""
        context = ssl.create_default_context(ssl.Purpose.CLIENT_AUTH)
        self.load(context)
        return context

    def load(self, context: ssl.SSLContext) -> None:
        """Have an engine serve with the certificate from here on."""
        context.load_cert_chain(self.pair.certificate, self.pair.key)


def certificate(certs: EngineCerts) -> dict[str, Any]:
    """The Secret that TLS names."""
    data = {"tls.crt": certs.pair.certificate.read_text(), "tls.key": certs.pair.key.read_text()}
    metadata = {"name": TLS["secretName"]}
    return {"apiVersion": "v1", "kind": "Secret", "type": "kubernetes.io/tls", "metadata": metadata, "stringData": data}


def bundle(*authorities: str) -> dict[str, Any]:
    """The ConfigMap that TLS names."""
    data = {BY_NAME.key: "".join(authorities)}
    return {"apiVersion": "v1", "kind": "ConfigMap", "metadata": {"name": BY_NAME.name}, "data": data}


def write_bundle(secrets: Path, *bundles: str) -> Path:
    """Write a bundle where a router with `--secrets-dir` looks for it; return the folder."""
    place = secrets / "chat" / BY_NAME.name
    place.mkdir(parents=True, exist_ok=True)
    beside = place / ".new"
    beside.write_text("".join(bundles))
    beside.replace(place / BY_NAME.key)
    return secrets


def secure_table(*addresses: str, tls: EngineTls = BY_NAME) -> RoutingTable:
    """One group whose engines serve TLS at these addresses."""
    slots = tuple(replace(slot(index, address=address), tls=tls) for index, address in enumerate(addresses))
    return table(group("support", revision(slots=slots)))
