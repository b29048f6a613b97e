"""Questions that are similar get one answer: through a whole router, to stand-in engines and a stand-in embedder."""

import asyncio
import contextlib

import orjson
import pytest

from promptgroup_router.contract.semantic import SemanticCaching, SemanticMode
from promptgroup_router.contract.table import CacheScope
from promptgroup_router.response_cache.purge import Purge
from support.answered import Oracle, exact, keeping, said
from support.fakeengine import Call, engines, until
from support.wire import ask, connected, get, post, routing, run

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
async def answering(tmp_path, mode=SemanticMode.ANSWER, budget=5000, max_entries=100, samples=0, **fields):
    """A router, its engine and its endpoint for embeddings."""
    oracle, embeddings = Oracle(), Embeddings()
    async with engines(2, oracle, embeddings) as (engine, embedder):
        url = f"http://{embedder.address}/v1/embeddings"
        semantic = SemanticCaching(mode, 0.9, url, "m", budget, max_entries)
        async with routing(
            tmp_path, keeping(engine.address, semantic=semantic, **fields), keep_samples=samples
        ) as router:
            yield router, oracle, embeddings
        embeddings.gate.set()


async def tell(router, text, *fields, **body):
    return await ask(router.port, post(exact(text, **body), *fields))


def counts(router) -> dict:
    return {result: count for (_, result), count in router.state.metrics.semantic.values.items()}


async def learnt(router, count: int) -> None:
    similar = router.answers.similar
    await until(lambda: sum(map(len, similar._groups.values())) == count, f"{count} questions to be remembered")


def test_a_similar_question_gets_the_answer_and_is_told_so(tmp_path):
    async def inside() -> None:
        async with answering(tmp_path) as (router, oracle, _):
            first = await tell(router, "How do I get a refund?")
            other = await tell(router, "What are your hours?")
            similar = await tell(router, "Can I have my money back?")
            assert oracle.inferences == 2
            assert said(similar.body) == said(first.body) != said(other.body)
            assert similar.headers[STATUS].startswith(b"promptgroup; hit; ttl=")
            assert similar.headers[STATUS].endswith(b"; detail=semantic")
            assert similar.headers[b"x-promptgroup-cache-key"] == first.headers[b"x-promptgroup-cache-key"]
            assert similar.json["id"] != first.json["id"]
            assert similar.json["usage"]["prompt_tokens_details"]["cached_tokens"] == 40
            assert counts(router) == {"miss": 2, "hit": 1}
            assert router.state.metrics.responses.values["chat/support", "hit_semantic"] == 1
            again = await tell(router, "Can I have my money back?")
            assert again.headers[STATUS].endswith(b"; detail=semantic"), "it is not kept as its own answer"

    run(inside())


def test_a_stream_is_answered_by_a_stream(tmp_path):
    async def inside() -> None:
        async with answering(tmp_path) as (router, oracle, _):
            await tell(router, "A refund?")
            first = await tell(router, "A refund?", stream=True)
            similar = await tell(router, "My money back?", stream=True)
            assert oracle.inferences == 2, "a stream and a whole answer are kept apart"
            assert said(similar.body) == said(first.body)

    run(inside())


@pytest.mark.parametrize(
    ("one", "other", "reason"),
    [
        ("A refund of 5?", "A refund of 6?", "refused_number"),
        ("A refund today?", "A refund tomorrow?", "refused_date"),
        ("Is there a refund?", "Is there no refund?", "refused_negation"),
        ("Is a refund by Ann good?", "Is a refund by Bob good?", "refused_name"),
    ],
)
def test_what_differs_in_a_number_a_date_a_name_or_a_no_is_not_similar(tmp_path, one, other, reason):
    async def inside() -> None:
        async with answering(tmp_path) as (router, oracle, _):
            await tell(router, one)
            await tell(router, other)
            assert oracle.inferences == 2
            assert counts(router) == {"miss": 1, reason: 1}

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
        async with answering(tmp_path) as (router, _, _):
            await tell(router, "How do I get a refund?")
            other = await tell(router, "My money back?", **changed)
            assert b"detail=semantic" not in other.headers.get(STATUS, b"")
            assert "hit" not in counts(router)

    run(inside())


def test_questions_after_another_conversation_do_not_meet(tmp_path):
    def turn(about, text):
        before = [{"role": "user", "content": about}, {"role": "assistant", "content": "Yes."}]
        doc = exact(text)
        return post(doc | {"messages": [doc["messages"][0], *before, doc["messages"][-1]]})

    async def inside() -> None:
        async with answering(tmp_path) as (router, oracle, _):
            for about in ("A shirt?", "A sofa?"):
                await ask(router.port, turn(about, "How do I get a refund?"))
            assert oracle.inferences == 2
            await ask(router.port, turn("A sofa?", "My money back?"))
            assert oracle.inferences == 2

    run(inside())


def test_callers_that_are_kept_apart_do_not_meet(tmp_path):
    async def inside() -> None:
        async with answering(tmp_path, scope=CacheScope.GROUP) as (router, oracle, _):
            await tell(router, "How do I get a refund?", "Authorization: Bearer one")
            await tell(router, "My money back?", "Authorization: Bearer two")
            assert oracle.inferences == 2
            await tell(router, "My money back!", "Authorization: Bearer one")
            assert oracle.inferences == 2

    run(inside())


def test_in_the_shadow_nothing_is_answered_and_nothing_waits(tmp_path):
    async def inside() -> None:
        async with answering(tmp_path, SemanticMode.SHADOW) as (router, oracle, embeddings):
            await tell(router, "How do I get a refund?")
            await learnt(router, 1)
            embeddings.gate.clear()
            similar = await tell(router, "My money back?")
            assert (oracle.inferences, similar.headers[STATUS]) == (2, b"promptgroup; fwd=miss")
            embeddings.gate.set()
            await until(lambda: counts(router) == {"miss": 1, "would_hit": 1}, "what would have been answered")

    run(inside())


def test_a_slow_endpoint_delays_a_request_by_its_budget_and_its_embedding_is_used_later(tmp_path):
    async def inside() -> None:
        async with answering(tmp_path, budget=1) as (router, oracle, embeddings):
            embeddings.gate.clear()
            first = await tell(router, "How do I get a refund?")
            assert first.status == 200
            assert counts(router) == {"late": 1}
            embeddings.gate.set()
            await learnt(router, 1)
            assert oracle.inferences == 1

    run(inside())


def test_an_endpoint_that_is_gone_fails_no_request(tmp_path):
    async def inside() -> None:
        async with answering(tmp_path) as (router, _, _):
            router.answers.similar.embedder._post = lambda *_: (_ for _ in ()).throw(OSError("gone"))
            answers = [await tell(router, f"How do I get a refund, {word}?") for word in ("please", "pray", "sir")]
            assert [answer.status for answer in answers] == [200] * 3
            assert counts(router) == {"failed": 3}

    run(inside())


def test_a_client_that_leaves_calls_the_question_off(tmp_path):
    async def inside() -> None:
        async with answering(tmp_path) as (router, oracle, embeddings):
            embeddings.gate.clear()
            async with connected(router.port) as client:
                client.send(post(exact("How do I get a refund?")))
                await until(lambda: embeddings.asked, "the question")
            await until(lambda: not router.answers.similar.embedder._tasks, "the question to be called off")
            assert (oracle.inferences, counts(router)) == (0, {})

    run(inside())


def test_clients_that_joined_are_told_that_the_answer_is_of_another_question(tmp_path):
    async def inside() -> None:
        async with answering(tmp_path) as (router, oracle, embeddings):
            await tell(router, "How do I get a refund?")
            embeddings.gate.clear()
            asking = [asyncio.ensure_future(tell(router, "My money back?")) for _ in range(3)]
            results = router.state.metrics.responses
            await until(lambda: results.values.get(("chat/support", "collapsed")) == 2, "two to join")
            embeddings.gate.set()
            answers = await asyncio.gather(*asking)
            assert all(each.headers[STATUS].endswith(b"detail=semantic") for each in answers)
            assert oracle.inferences == 1

    run(inside())


def test_answers_that_are_purged_or_gone_are_not_given(tmp_path):
    async def inside() -> None:
        async with answering(tmp_path) as (router, oracle, _):
            first = await tell(router, "How do I get a refund?")
            router.answers._memory.groups.clear()
            await tell(router, "My money back?")
            assert oracle.inferences == 2
            key = bytes.fromhex(first.headers[b"x-promptgroup-cache-key"].decode())
            router.answers.purge(Purge(key=key))
            router.answers.purge(Purge(group="chat/support"))
            await learnt(router, 0)
            await tell(router, "How do I get a refund!")
            assert oracle.inferences == 3

    run(inside())


def test_requests_without_a_question_are_counted_where_the_exact_cache_has_no_answer(tmp_path):
    async def inside() -> None:
        async with answering(tmp_path) as (router, _, embeddings):
            for _ in range(2):
                await tell(router, "x" * 3000)
            assert (counts(router), embeddings.asked) == ({"no_question": 1}, [])

    run(inside())


def test_what_a_client_forbids_is_not_done(tmp_path):
    async def inside() -> None:
        async with answering(tmp_path) as (router, oracle, embeddings):
            await tell(router, "How do I get a refund?")
            await tell(router, "My money back?", "Cache-Control: no-cache")
            await tell(router, "My money back please?", "Cache-Control: no-store")
            assert (oracle.inferences, len(embeddings.asked)) == (3, 1)
            assert (await tell(router, "My money back now?", "Cache-Control: only-if-cached")).status == 504

    run(inside())


def test_questions_leave_with_their_group_and_with_the_model_of_their_embeddings(tmp_path):
    async def inside() -> None:
        async with answering(tmp_path, max_entries=1) as (router, _, _):
            similar = router.answers.similar
            await tell(router, "How do I get a refund?")
            await tell(router, "What are your hours?")
            await learnt(router, 1)
            similar.keep_groups({})
            assert similar._groups == {}

    run(inside())


def test_shadow_mode_keeps_samples_where_they_are_allowed_until_they_are_purged(tmp_path):
    async def inside() -> None:
        async with answering(tmp_path, SemanticMode.SHADOW, samples=15) as (router, _, _):
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
        async with answering(tmp_path, SemanticMode.SHADOW) as (router, _, _):
            await tell(router, "How do I get a refund?")
            await learnt(router, 1)
            await tell(router, "My money back?")
            await until(lambda: counts(router).get("would_hit"), "what would have been answered")
            assert router.answers.similar.samples() == b""
            assert (await ask(router.admin_port, get("/responses/samples"))).status == 403

    run(inside())
