"""Holds the TLS contexts by which engines are verified: one for each CA bundle that was read.

A context never changes: a changed bundle gets a new one, so that a connection's context shows whether the connection
was verified by the current bundle.
"""

import ssl
from typing import NamedTuple

from promptgroup_contract.engine_tls import EngineTls


class BundleRef(NamedTuple):
    """A key of a ConfigMap or Secret, whose value is a CA bundle in PEM."""

    namespace: str
    kind: str
    name: str
    key: str


def bundle_of(namespace: str, tls: EngineTls) -> BundleRef:
    """Return the bundle by which an engine of a namespace is verified."""
    return BundleRef(namespace, tls.kind, tls.name, tls.key)


class Authorities:
    """The CA bundles that a router has read."""

    def __init__(self) -> None:
        self._contexts: dict[BundleRef, tuple[bytes, ssl.SSLContext]] = {}
        self.version = 0
        """Increases with each change of a bundle."""

    def learn(self, ref: BundleRef, bundle: bytes) -> str:
        """Replace a bundle; an invalid one leaves the last valid one in place.

        Returns:
            The problem with the bundle; empty if it is valid.
        """
        entry = self._contexts.get(ref)
        if entry is not None and entry[0] == bundle:
            return ""
        try:
            self._contexts[ref] = bundle, client_context(bundle)
        except ValueError as error:
            return f"key {ref.key} {error}"
        self.version += 1
        return ""

    def keep(self, refs: frozenset[BundleRef]) -> None:
        """Remove the bundles by which no engine is verified any more."""
        current = {ref: entry for ref, entry in self._contexts.items() if ref in refs}
        if len(current) < len(self._contexts):
            self._contexts = current
            self.version += 1

    def context(self, ref: BundleRef) -> ssl.SSLContext | None:
        """Return the TLS context of a bundle; None while the bundle was not read."""
        entry = self._contexts.get(ref)
        return entry[1] if entry is not None else None

    def bundles(self) -> dict[BundleRef, bytes]:
        """Return all bundles that were read."""
        return {ref: bundle for ref, (bundle, _) in self._contexts.items()}


def client_context(bundle: bytes) -> ssl.SSLContext:
    """Return the TLS settings towards engines: TLS 1.2 or newer, HTTP/1.1, certificate and name verified.

    Raises:
        ValueError: the bundle holds no certificate; the message does not repeat it.
    """
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_CLIENT)  # verifies the certificate, and the name
    context.minimum_version = ssl.TLSVersion.TLSv1_2
    context.options |= ssl.OP_NO_COMPRESSION
    # a CA in the bundle is a trust anchor even if another CA has signed it, as in cert-manager's `ca.crt`
    context.verify_flags |= ssl.VERIFY_X509_PARTIAL_CHAIN
    context.hostname_checks_common_name = False
    context.set_alpn_protocols(["http/1.1"])
    try:
        context.load_verify_locations(cadata=bundle.decode("ascii"))
    except (ssl.SSLError, ValueError) as error:
        reason = getattr(error, "reason", None) or type(error).__name__
        raise ValueError(f"holds no certificates in PEM: {reason}") from None
    return context
