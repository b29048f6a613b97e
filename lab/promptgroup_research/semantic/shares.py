"""The share of requests that the caches answer, by workload, decided by the router's own code.

A request is a body as clients send it. The router's code decides whether its answer may be cached, and computes its key
and its question; only the embeddings are given. Routers only count semantic answers, and do not serve them.
"""

import random
from array import array
from collections.abc import Callable, Iterable, Iterator
from typing import Any, NamedTuple

import orjson

from promptgroup_contract.table import ResponseCaching
from promptgroup_research.semantic.faq import Question, questions
from promptgroup_router.apis.endpoints import ENDPOINTS
from promptgroup_router.apis.request import CHAT_PATH, ParsedRequest
from promptgroup_router.response_cache.cacheable import bypass
from promptgroup_router.response_cache.canonical import CacheKey, cache_key
from promptgroup_router.semantic import question as questions_of
from promptgroup_router.semantic.neighbours import QuestionIndex

SYSTEM = "You are the support assistant of Example Ltd."
CACHING = ResponseCaching(ttl=3600, max_bytes=2**26)
MOST_QUESTIONS = 5000
TOOLS = [{"type": "function", "function": {"name": "run", "parameters": {"type": "object", "properties": {}}}}]


class Request(NamedTuple):
    """A body, and the name of its right answer; empty where only an equal request has the same answer."""

    body: dict[str, Any]
    answer: str = ""


class Shares(NamedTuple):
    """The results for a workload's requests."""

    requests: int
    exact: int
    semantic: int
    wrong: int
    """Semantic answers that belong to another question."""


def shares(requests: Iterable[Request], embedding: Callable[[str], "array[float]"] | None, threshold: float) -> Shares:
    """Return how many requests the caches answer, one after the other.

    Args:
        requests: the requests.
        embedding: returns the embedding of a text; None without a semantic cache.
        threshold: threshold of the semantic cache.
    """
    index, kept, right = QuestionIndex(("", "")), set[CacheKey](), dict[CacheKey, str]()
    count = exact = semantic = wrong = 0
    for request in requests:
        count += 1
        parsed_request = ENDPOINTS[CHAT_PATH].parse(orjson.dumps(request.body))
        if bypass(parsed_request, CACHING, "e1", frozenset()) is not None:
            continue
        key = _key(parsed_request)
        if key in kept:
            exact += 1
            continue
        result = questions_of.read_question(parsed_request)
        if embedding is not None and result is not None:
            text, rest = result
            question = questions_of.Question(text, questions_of.Circumstances(_key(rest)))
            vector = embedding(text)
            nearest = index.nearest(question, vector, threshold)
            if nearest:
                semantic += 1
                wrong += right[nearest[0].key] != request.answer
                continue  # another question's answer is not cached for this one
            index.add(question, vector, key, MOST_QUESTIONS)
        kept.add(key)
        right[key] = request.answer
    return Shares(count, exact, semantic, wrong)


def asked(text: str, **fields: object) -> dict[str, Any]:
    """Return a body with one question, at temperature 0."""
    messages = [{"role": "system", "content": SYSTEM}, {"role": "user", "content": text}]
    return {"model": "llama", "temperature": 0, "messages": messages, **fields}


def made_up_faq(count: int, seed: int, typing: float = 0.0) -> Iterator[Request]:
    """Requests to a FAQ: answers by a Zipf distribution (exponent 1), wordings too.

    Args:
        count: number of requests.
        seed: of the draws.
        typing: share of questions that are typed with a slip of their own, so that they are equal to no other.
    """
    draw = random.Random(seed)  # noqa: S311 - a workload
    groups = questions(5)
    draw.shuffle(groups)
    popularity = [1 / rank for rank in range(1, len(groups) + 1)]
    for _ in range(count):
        (group,) = draw.choices(groups, popularity)
        (question,) = draw.choices(group, [1 / rank for rank in range(1, len(group) + 1)])
        yield Request(asked(_slip(question.text, draw) if draw.random() < typing else question.text), question.answer)


def _slip(text: str, draw: random.Random) -> str:
    at = draw.randrange(1, len(text) - 1)
    return text[:at] + text[at + 1] + text[at] + text[at + 2 :]


def recorded_questions(result: Iterable[Question]) -> Iterator[Request]:
    """Requests with recorded questions, each sent once."""
    return (Request(asked(item.text), item.answer) for item in result)


def agents(tasks: int, seed: int) -> Iterator[Request]:
    """Agents with tools: 20 steps of a task, each with the results before it. One task in ten was begun before."""
    draw = random.Random(seed)  # noqa: S311 - a workload
    for number in range(tasks):
        task = draw.randrange(number) if number and draw.random() < 0.1 else number
        messages = asked(f"Mend issue {task}.")["messages"]
        for step in range(20):
            yield Request({"model": "llama", "temperature": 0, "tools": TOOLS, "messages": list(messages)})
            call: dict[str, Any] = {"id": f"call-{draw.getrandbits(64):x}", "type": "function"}
            call["function"] = {"name": "run", "arguments": f'{{"step": {step}}}'}
            messages.append({"role": "assistant", "content": None, "tool_calls": [call]})
            messages.append({"role": "tool", "tool_call_id": call["id"], "content": f"took {draw.random():.3f} s"})


def open_ended(chats: int, seed: int) -> Iterator[Request]:
    """Chats of five turns that sample, as chat applications do: temperature 0.7."""
    draw = random.Random(seed)  # noqa: S311 - a workload
    for _ in range(chats):
        messages = asked("")["messages"][:1]
        for _ in range(5):
            messages.append({"role": "user", "content": f"Tell me about {draw.getrandbits(20)}."})
            yield Request({"model": "llama", "temperature": 0.7, "messages": list(messages)})
            messages.append({"role": "assistant", "content": f"It is {draw.getrandbits(64)}."})


def equal_prompts(lines: Iterable[bytes]) -> Shares:
    """Return how many requests of a Mooncake trace repeat a whole prompt, the most that an exact cache answers."""
    seen: set[tuple[int, ...]] = set()
    count = exact = 0
    for line in lines:
        row = orjson.loads(line)
        prompt = (row["input_length"], *row["hash_ids"])
        count += 1
        exact += prompt in seen
        seen.add(prompt)
    return Shares(count, exact, 0, 0)


def _key(request: ParsedRequest) -> CacheKey:
    return cache_key(
        request,
        path=CHAT_PATH,
        query=b"",
        revision="r",
        settings="e1",
        model="m",
        sharers=b"",
        space="",
        preamble=None,
        allowed=frozenset(),
    )
