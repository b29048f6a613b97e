"""The rule by which an engine that serves TLS is verified, as its pod and its slot tell it to operator and routers.

As text it is `KIND/NAME/KEY`, followed by `/SERVER_NAME` where one is declared; no part can have a slash.
"""

import re
from typing import NamedTuple

CONFIG_MAP, SECRET = "ConfigMap", "Secret"

EXPECTED = "KIND/NAME/KEY and the server name, as in Secret/ca/ca.crt/x"
_NAME = r"[A-Za-z0-9](?:[A-Za-z0-9._-]{0,251}[A-Za-z0-9])?"
_TEXT = re.compile(rf"({CONFIG_MAP}|{SECRET})/({_NAME})/([A-Za-z0-9._-]{{1,253}})(?:/({_NAME}))?", re.ASCII)


class EngineTls(NamedTuple):
    """The authorities that an engine's certificate must be signed by, and the name that it must have."""

    kind: str
    """`ConfigMap` or `Secret`, in the namespace of the engine's group."""
    name: str
    key: str
    """Its value has certificates in PEM."""
    server_name: str = ""
    """Empty for the address of the engine's pod."""

    def text(self) -> str:
        """Return the value as `parse` reads it."""
        return "/".join(part for part in self if part)


def parse(text: str) -> EngineTls | None:
    """Return the value of a text; None if it is none, and then the engine must not be reached at all."""
    result = _TEXT.fullmatch(text)
    return EngineTls(*(part or "" for part in result.groups())) if result is not None else None
