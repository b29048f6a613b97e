"""The start of conversations: the key of a session that the client does not name.

The router makes the key of the first messages (`promptgroup_router.apis.session_key`), which every turn repeats. A
client that writes the time into the first user message, anew on every turn, gives its conversation another key, and
has all of it computed again. Two turns are of one conversation when they repeat the same answer, and the same
question but for volatile tokens.
"""

from collections.abc import Iterator
from dataclasses import dataclass
from itertools import dropwhile

import xxhash

from promptgroup_cli.lint import volatile
from promptgroup_cli.lint.finding import Finding, FindingPlace, Rule, Severity
from promptgroup_cli.lint.subject import LintSubject, placed_messages, size
from promptgroup_router.apis.request import ApiKind, text_of
from promptgroup_router.apis.responses import previous_response
from promptgroup_router.apis.session_key import START_BYTES, find_session

SESSION_START = Rule(
    "session-start",
    Severity.ERROR,
    "a first user message that is another one on later turns",
    "the conversation's history is computed again on every turn; and its session key, made of this message, is another "
    "one, so that turns go to different replicas",
    "repeat earlier messages byte for byte, put the time into the new message; or name the session: x-session-id",
)
RULES = (SESSION_START,)

TRACKED = 8192
"""Conversations whose turns are compared, the latest: turns of one follow each other within minutes."""


@dataclass(slots=True)
class _Suspect:
    place: FindingPlace
    requests: int = 0


class Starts:
    """The starts of all conversations."""

    def __init__(self) -> None:
        self._latest: dict[tuple[int, int], int] = {}
        """(hash of the question without its tokens, of the answer) → hash of the question."""
        self._suspects: dict[str, _Suspect] = {}
        """Suspects by the kind of token."""
        self._differ: _Suspect | None = None

    def see(self, subject: LintSubject) -> None:
        """Compare a request's start with that of its earlier turns."""
        request = subject.ask
        if (
            request is None
            or request.kind is ApiKind.TEXT
            or find_session(request, {}, "").named
            or previous_response(request)
        ):
            return
        messages = dropwhile(lambda placed: placed[1]["role"] != "user", placed_messages(request))
        field, first = next(messages, ("", None))
        if first is None:
            return
        question = text_of(first.get("content"))
        head = question[:START_BYTES]
        tokens = volatile.tokens(head)
        if not tokens:
            return
        place = FindingPlace(subject.file, subject.line, field, size(head, tokens[0].start))
        self._suspects.setdefault(tokens[0].rule.title, _Suspect(place)).requests += 1
        answer = next((text_of(item.get("content")) for _, item in messages if item["role"] == "assistant"), "")
        if not answer:
            return
        rest, done = [], 0
        for token in tokens:
            rest.append(head[done : token.start])
            done = token.end
        conversation = (_hash("\0".join([*rest, head[done:]])), _hash(answer))
        spelled = _hash(question)
        if self._latest.pop(conversation, spelled) != spelled:
            self._differ = self._differ or _Suspect(place)
            self._differ.requests += 1
        self._latest[conversation] = spelled
        if len(self._latest) > TRACKED:
            del self._latest[next(iter(self._latest))]

    def findings(self) -> Iterator[Finding]:
        """Yield the first messages that vary or look volatile."""
        if self._differ is not None:
            value = f"{SESSION_START.title}; the session's key is made of it"
            yield Finding(SESSION_START, SESSION_START.severity, self._differ.place, value, self._differ.requests)
            return
        for title, item in self._suspects.items():
            value = f"first user messages have {title}: harmless where later turns repeat it as it was"
            yield Finding(SESSION_START, Severity.NOTE, item.place, value, item.requests)


def _hash(text: str) -> int:
    return xxhash.xxh3_64_intdigest(text.encode(errors="surrogatepass"))
