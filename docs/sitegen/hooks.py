"""MkDocs hook: links that lead out of docs/, to files of the repository, become links to the repository.

Pages are read on the site and in the repository. `../../CONTRIBUTING.md` works in the repository; on the site the hook
makes it an address below `repo_url`, or plain text where none is set. A file that does not exist fails the build.
"""

import logging
import posixpath
import re
from pathlib import Path
from typing import Any

ROOT = Path(__file__).parents[2]
LINK = re.compile(r"\[(?P<text>[^\]]*)\]\((?P<target>(?:\.\./)+[^)#\s]+)(?P<anchor>#[^)\s]*)?\)")

log = logging.getLogger("mkdocs.hooks.repository")


def on_page_markdown(markdown: str, *, page: Any, config: Any, **_: Any) -> str:
    """Rewrite the links of one page."""
    folder = posixpath.dirname(page.file.src_uri)

    def rewrite(result: re.Match[str]) -> str:
        target = posixpath.normpath(posixpath.join("docs", folder, result["target"]))
        if target.startswith("docs/"):
            return result[0]
        if not (ROOT / target).exists():
            log.warning("%s links to %s, which is not in the repository", page.file.src_uri, target)
        if not config.repo_url:
            return f"{result['text']} (`{target}`)" if target not in result["text"] else result["text"]
        return f"[{result['text']}]({config.repo_url.rstrip('/')}/blob/main/{target}{result['anchor'] or ''})"

    return LINK.sub(rewrite, markdown)
