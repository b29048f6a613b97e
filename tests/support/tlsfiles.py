"""Certificates in files, as cert-manager keeps them in a Secret: tls.crt, tls.key, ca.crt."""

import ssl
from pathlib import Path

from support.fakekube import certificate


class TlsFiles:
    """The certificate of a server for 127.0.0.1, which is its own authority."""

    def __init__(self, folder: Path) -> None:
        folder.mkdir(exist_ok=True)
        self.cert, self.key = folder / "tls.crt", folder / "tls.key"
        self.replace()

    def replace(self) -> None:
        """Write a new certificate with a new key."""
        cert, key = certificate()
        for path, content in ((self.cert, cert), (self.key, key)):
            beside = path.with_suffix(".new")
            beside.write_bytes(content)
            beside.replace(path)

    def client(self, own: "TlsFiles | None" = None) -> ssl.SSLContext:
        """What a client trusts that knows the certificate as it is now; `own` is the client's own certificate."""
        context = ssl.create_default_context(cafile=self.cert)
        if own is not None:
            context.load_cert_chain(own.cert, own.key)
        return context
