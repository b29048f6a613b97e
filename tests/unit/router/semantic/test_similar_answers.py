"""Similar questions are counted: through a whole router, to stand-in engines and a stand-in embedder."""

import asyncio
import contextlib
from dataclasses import replace

import orjson
import pytest

from promptgroup_contract.semantic import SemanticCaching
from promptgroup_contract.table import CacheScope, ResponseCaching
from promptgroup_router.response_cache.purge import Purge
from support.answered import CACHING, Oracle, exact, keeping
from support.fakeengine import Call, engines, until
from support.tables import group, table
from support.wire import ask, get, post, routing, run

STATUS = b"cache-status"
VECTORS = {"refund": [1, 0, 0], "money back": [1, 0.1, 0], "hours": [0, 1, 0]}
"""What a question is about, and its embedding."""


class Embeddings:
    """An endpoint that knows what questions are about."""

    def __init__(self) -> None:
        self.asked: list[str] = []
        self.gate = asyncio.Event()
        self.gate.set()

    async def __call__(self, call: Call) -> None:
        text = call.json["input"]
        self.asked.append(text)
        await self.gate.wait()
        vector = next((each for about, each in VECTORS.items() if about in text), [0, 0, 1])
        call.answer(orjson.dumps({"data": [{"index": 0, "embedding": vector}]}))


@contextlib.asynccontextmanager
async def measuring(tmp_path, max_entries=100, samples=0, **fields):
    """A router, its engine and its endpoint for embeddings."""
    oracle, embeddings = Oracle(), Embeddings()
    async with engines(2, oracle, embeddings) as (engine, embedder):
        url = f"http://{embedder.address}/v1/embeddings"
        semantic = SemanticCaching(0.9, url, "m", max_entries)
        async with routing(
            tmp_path, keeping(engine.address, semantic=semantic, **fields), keep_samples=samples
        ) as router:
            yield router, oracle, embeddings
        embeddings.gate.set()


async def tell(router, text, *fields, **body):
    return await ask(router.port, post(exact(text, **body), *fields))


def counts(router) -> dict:
    return {result: count for (_, result), count in router.answers.observer.series.results.values.items()}


async def learnt(router, count: int) -> None:
    similar = router.answers.observer
    await until(lambda: sum(map(len, similar._groups.values())) == count, f"{count} questions to be remembered")


async def counted(router, **expected: int) -> None:
    await until(lambda: counts(router) == expected, f"{expected} to be counted")


def test_a_similar_question_is_counted_and_computed_without_waiting(tmp_path):
    async def inside() -> None:
        async with measuring(tmp_path) as (router, oracle, embeddings):
            await tell(router, "How do I get a refund?")
            await learnt(router, 1)
            await tell(router, "What are your hours?")
            await learnt(router, 2)
            embeddings.gate.clear()
            similar = await tell(router, "Can I have my money back?")
            assert (oracle.inferences, similar.headers[STATUS]) == (3, b"promptgroup; fwd=miss")
            embeddings.gate.set()
            await counted(router, miss=2, would_hit=1)

    run(inside())


@pytest.mark.parametrize(
    "changed",
    [
        {"max_tokens": 5},
        {"temperature": 0.5},
        {"system": "You are another."},
        {"tools": [{"type": "function", "function": {"name": "f", "parameters": {}}}]},
    ],
)
def test_questions_of_other_requests_do_not_meet(tmp_path, changed):
    async def inside() -> None:
        async with measuring(tmp_path) as (router, _, _):
            await tell(router, "How do I get a refund?")
            await learnt(router, 1)
            await tell(router, "My money back?", **changed)
            await until(lambda: not router.answers.observer.embedder._tasks, "each question to be embedded")
            assert "would_hit" not in counts(router)

    run(inside())


def test_questions_after_another_conversation_do_not_meet(tmp_path):
    def turn(about, text):
        before = [{"role": "user", "content": about}, {"role": "assistant", "content": "Yes."}]
        doc = exact(text)
        return post(doc | {"messages": [doc["messages"][0], *before, doc["messages"][-1]]})

    async def inside() -> None:
        async with measuring(tmp_path) as (router, _, _):
            for number, about in enumerate(("A shirt?", "A sofa?"), 1):
                await ask(router.port, turn(about, "How do I get a refund?"))
                await learnt(router, number)
            await ask(router.port, turn("A sofa?", "My money back?"))
            await counted(router, miss=2, would_hit=1)

    run(inside())


def test_callers_that_are_kept_apart_do_not_meet(tmp_path):
    async def inside() -> None:
        async with measuring(tmp_path, scope=CacheScope.GROUP) as (router, _, _):
            await tell(router, "How do I get a refund?", "Authorization: Bearer one")
            await learnt(router, 1)
            await tell(router, "My money back?", "Authorization: Bearer two")
            await learnt(router, 2)
            assert counts(router) == {"miss": 2}
            await tell(router, "My money back!", "Authorization: Bearer one")
            await counted(router, miss=2, would_hit=1)

    run(inside())


def test_an_endpoint_that_is_gone_fails_no_request(tmp_path):
    async def inside() -> None:
        async with measuring(tmp_path) as (router, _, _):
            router.answers.observer.embedder._post = lambda *_: (_ for _ in ()).throw(OSError("gone"))
            answers = [await tell(router, f"How do I get a refund, {word}?") for word in ("please", "pray", "sir")]
            assert [answer.status for answer in answers] == [200] * 3
            await counted(router, failed=3)

    run(inside())


def test_answers_that_are_purged_or_gone_are_not_counted(tmp_path):
    async def inside() -> None:
        async with measuring(tmp_path) as (router, _, _):
            first = await tell(router, "How do I get a refund?")
            await learnt(router, 1)
            router.answers._memory.groups.clear()
            await tell(router, "My money back?")
            await counted(router, miss=2)
            await learnt(router, 1)
            key = bytes.fromhex(first.headers[b"x-promptgroup-cache-key"].decode())
            router.answers.purge(Purge(key=key))
            await learnt(router, 1)
            router.answers.purge(Purge(group="chat/support"))
            await learnt(router, 0)
            await tell(router, "How do I get a refund!")
            await counted(router, miss=3)

    run(inside())


def test_requests_without_a_question_are_counted_where_the_exact_cache_has_no_answer(tmp_path):
    async def inside() -> None:
        async with measuring(tmp_path) as (router, _, embeddings):
            for _ in range(2):
                await tell(router, "x" * 3000)
            assert (counts(router), embeddings.asked) == ({"no_question": 1}, [])

    run(inside())


def test_what_a_client_forbids_is_not_done(tmp_path):
    async def inside() -> None:
        async with measuring(tmp_path) as (router, oracle, embeddings):
            await tell(router, "How do I get a refund?")
            await learnt(router, 1)
            await tell(router, "My money back?", "Cache-Control: no-cache")
            await tell(router, "My money back please?", "Cache-Control: no-store")
            assert (oracle.inferences, len(embeddings.asked)) == (3, 1)
            assert (await tell(router, "My money back now?", "Cache-Control: only-if-cached")).status == 504

    run(inside())


def test_questions_leave_with_their_group_and_with_the_model_of_their_embeddings(tmp_path):
    async def inside() -> None:
        async with measuring(tmp_path, max_entries=1) as (router, _, _):
            similar = router.answers.observer
            await tell(router, "How do I get a refund?")
            await learnt(router, 1)
            await tell(router, "What are your hours?")
            await learnt(router, 1)
            router.answers.tell()
            page = await ask(router.admin_port, get("/metrics"))
            assert b'promptgroup_router_semantic_questions{group="chat/support"} 1' in page.body
            similar.keep_groups({"chat/support": CACHING})
            assert similar._groups == {}

    run(inside())


def test_the_credential_of_the_endpoint_is_read_where_a_group_names_one(tmp_path):
    async def inside() -> None:
        async with measuring(tmp_path) as (router, _, _):
            rules = SemanticCaching(0.9, "http://embedder/", "m", 10, "embedder/key")
            asking = group("support", responses=ResponseCaching(60, 1024, semantic=rules))
            keyless = group("other", responses=ResponseCaching(60, 1024, semantic=replace(rules, credential="")))
            (secrets,) = router.state.features.secrets
            assert list(secrets(table(asking, keyless, group("third")))) == [("chat", "embedder")]

    run(inside())


def test_shadow_mode_keeps_samples_where_they_are_allowed_until_they_are_purged(tmp_path):
    async def inside() -> None:
        async with measuring(tmp_path, samples=15) as (router, _, _):
            await tell(router, "How do I get a refund?")
            await learnt(router, 1)
            for number, text in enumerate(["My money back?", "The money back?"], 2):
                await tell(router, text)
                await learnt(router, number)
            shown = await ask(router.admin_port, get("/responses/samples"))
            (last,) = map(orjson.loads, shown.body.splitlines())  # the first refund has more bytes than are allowed
            assert last["a"] == "The money back?"
            assert (last["b"], last["same"], last["group"]) == ("My money back?", None, "chat/support")
            router.answers.purge(Purge(group="chat/support"))
            assert (await ask(router.admin_port, get("/responses/samples"))).body == b""

    run(inside())


def test_there_are_no_samples_where_nobody_allows_them(tmp_path):
    async def inside() -> None:
        async with measuring(tmp_path) as (router, _, _):
            await tell(router, "How do I get a refund?")
            await learnt(router, 1)
            await tell(router, "My money back?")
            await until(lambda: counts(router).get("would_hit"), "what would have been answered")
            assert router.answers.observer.samples() == b""
            assert (await ask(router.admin_port, get("/responses/samples"))).status == 403

    run(inside())
