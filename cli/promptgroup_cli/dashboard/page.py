"""The page: one document with its style and its programs inside, and the policy by which browsers enforce that."""

import base64
import hashlib
from dataclasses import dataclass
from functools import cache
from importlib import resources

SCRIPTS = ("dom.js", "ring.js", "chart.js", "sections.js", "explain.js", "main.js")
"""Programs of the page, in the order in which each needs those before it."""
STYLE = "page.css"
_STYLE_PLACE, _SCRIPT_PLACE = "/* style */", "/* script */"


@dataclass(frozen=True, slots=True)
class DashboardPage:
    """The document as it is sent."""

    body: bytes
    policy: str
    """Its Content-Security-Policy: only its own programs run, and they may connect only to their own server."""


@cache
def load() -> DashboardPage:
    """Return the page, assembled from the files beside this module."""
    folder = resources.files("promptgroup_cli.dashboard") / "page"
    style = (folder / STYLE).read_text("utf-8")
    script = "\n".join(("'use strict';", *((folder / name).read_text("utf-8") for name in SCRIPTS)))
    page = (folder / "page.html").read_text("utf-8").replace(_STYLE_PLACE, style).replace(_SCRIPT_PLACE, script)
    policy = "; ".join(
        (
            "default-src 'none'",
            f"script-src {_hash(script)}",
            f"style-src {_hash(style)}",
            "img-src data:",
            "connect-src 'self'",
            "base-uri 'none'",
            "form-action 'none'",
            "frame-ancestors 'none'",
            "require-trusted-types-for 'script'",
            "trusted-types 'none'",
        )
    )
    return DashboardPage(page.encode(), policy)


def _hash(text: str) -> str:
    return f"'sha256-{base64.b64encode(hashlib.sha256(text.encode()).digest()).decode()}'"
