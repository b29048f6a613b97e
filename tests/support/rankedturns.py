"""Conversations of several sessions at a time, and what of their prompts was found in cache: engines with ranks."""

import concurrent.futures
import random
from dataclasses import dataclass, field

import urllib3

from promptgroup_contract import names

SESSIONS, TURNS, WORKERS = 12, 8, 3
LEAST = 0.82
"""Share that is cached where each session has one cache: half of the way between 86.1 %, where all have the same one,
and 76 to 78 %, where the engine chooses among two (vLLM 0.32). A turn that leaves its cache, as it may on a busy
machine, costs up to a percent."""
WORDS = ("import", "return", "class", "value", "self", "error", "path", "name")


@dataclass(slots=True)
class Found:
    """What the answers said."""

    prompt: int = 0
    cached: int = 0
    served: dict[int, set[str]] = field(default_factory=dict)
    """Session → the places that served it."""

    @property
    def share(self) -> float:
        """Share of the prompt tokens that were cached."""
        return self.cached / self.prompt


def words(seed: str, count: int) -> str:
    """Return text that is the same for a seed."""
    draw = random.Random(seed)
    return " ".join(f"{draw.choice(WORDS)}{draw.randrange(99)}" for _ in range(count))


def converse(url: str, system: str) -> Found:
    """Hold the conversations by a router; each client names a rank, which must count nothing."""
    histories = {session: [{"role": "system", "content": system}] for session in range(SESSIONS)}
    found = Found(served={session: set() for session in range(SESSIONS)})

    def turn(session: int, number: int) -> tuple[int, int]:
        history = histories[session]
        history.append({"role": "user", "content": words(f"{session}.{number}", 60)})
        body = {"model": "tiny", "messages": history, "max_tokens": 8, "temperature": 0}
        headers = {"x-session-id": f"s{session}", names.HEADER_RANK: "0"}
        answer = urllib3.request(
            "POST", f"{url}/v1/chat/completions", json=body, headers=headers, timeout=120, retries=False
        )
        assert answer.status == 200, answer.data
        history.append({"role": "assistant", "content": words(f"{session}.{number}.answer", 20)})
        found.served[session].add(answer.headers[names.HEADER_SERVED_BY])
        usage = answer.json()["usage"]
        return usage["prompt_tokens"], usage["prompt_tokens_details"]["cached_tokens"]

    with concurrent.futures.ThreadPoolExecutor(WORKERS) as pool:
        for number in range(TURNS):
            order = list(range(SESSIONS))
            random.Random(number).shuffle(order)
            for tokens, cached in pool.map(lambda session, number=number: turn(session, number), order):
                found.prompt, found.cached = found.prompt + tokens, found.cached + cached
    return found
