"""The parts of the module that need no engine: what it sends, and how it reads an answer."""

import gzip
import json
from types import SimpleNamespace

import pytest

from promptgroup_contract.table import Prompt
from promptgroup_operator.base.errors import EngineError
from promptgroup_operator.engines import engine, engine_metrics
from promptgroup_operator.engines.dialects.sglang import SGLANG
from promptgroup_operator.engines.dialects.tensorrt_llm import TENSORRT_LLM
from promptgroup_operator.engines.dialects.vllm import VLLM
from promptgroup_operator.engines.engine import EngineClient, _bodies, _cached_tokens, _grown
from promptgroup_operator.world.snapshot import Spent
from promptgroup_operator.world.warming import RefreshAnswer
from support.builders import reading
from support.hostile import HOSTILE, hostile_server

METRICS = """\
vllm:prefix_cache_queries_total{engine="0",model_name="llama"} 1024.0
vllm:prefix_cache_hits_total{engine="0",model_name="llama"} 1.0e+03
vllm:cache_config_info{block_size="16",cache_hit_alignment_tokens="32",enable_prefix_caching="True"} 1.0
"""


def test_the_two_requests_of_a_proof_share_the_prefix_and_nothing_after_it():
    warm_up, probe = _bodies("llama", Prompt("the system text", '[{"a":1}]'))
    assert warm_up["messages"][0] == probe["messages"][0] == {"role": "system", "content": "the system text"}
    assert warm_up["messages"][1]["content"] != probe["messages"][1]["content"]
    assert warm_up["tools"] == probe["tools"] == [{"a": 1}]
    assert warm_up["max_tokens"] == 1
    assert "tools" not in _bodies("llama", Prompt("x"))[0]


def test_a_warm_up_ends_behind_the_declared_messages():
    said = '[{"content":"Where?","role":"user"},{"content":"Here.","role":"assistant"}]'
    warm_up, probe = _bodies("llama", Prompt("the system text", "", said))
    assert [each["role"] for each in warm_up["messages"]] == ["system", "user", "assistant", "user"]
    assert warm_up["messages"][:-1] == probe["messages"][:-1]
    assert warm_up["messages"][-1] != probe["messages"][-1]


USAGE = [
    ({"prompt_tokens_details": {"cached_tokens": 7}}, 7),
    ({"prompt_tokens_details": {"cached_tokens": 0}}, 0),
    ({"prompt_tokens_details": None}, None),
    ({"prompt_tokens_details": {"cached_tokens": None}}, None),
    ({}, None),
]


def test_where_usage_does_not_say_the_counters_growth_does():
    assert _grown(reading(100, 50), reading(200, 146)) == 96


@pytest.mark.parametrize(
    ("before", "after"),
    [(None, reading(1, 1)), (reading(1, 1), None), (reading(1, 1), reading(1, 1)), (reading(9, 1), reading(1, 1))],
    ids=["no reading before", "none after", "no lookup in between", "counters that began anew"],
)
def test_counters_that_say_nothing_are_not_zero(before, after):
    assert _grown(before, after) is None


@pytest.mark.parametrize(("usage", "expected"), USAGE)
def test_cached_tokens(usage, expected):
    assert _cached_tokens(VLLM, usage) == [expected]


def test_an_engine_that_leaves_a_zero_out_means_it_once_another_answer_says_a_number():
    told, silent = {"prompt_tokens_details": {"cached_tokens": 7}}, {"prompt_tokens_details": None}
    assert _cached_tokens(SGLANG, silent, told) == [0, 7]
    assert _cached_tokens(SGLANG, silent, silent) == [None, None]
    assert _cached_tokens(VLLM, silent, told) == [None, 7]


class Replying(EngineClient):
    """Engines whose one replica answers as told, each chat after so many seconds of the clock."""

    def __init__(self, *chats, metrics=METRICS):
        super().__init__()
        self.chats, self.metrics, self.now = list(chats), metrics, 0.0
        self.queries = self.hits = 0

    def _request(self, method, address, path, body, *, seconds, limit, rank=None):
        if path == "/metrics":
            counters = f"vllm:prefix_cache_queries_total {self.queries}\nvllm:prefix_cache_hits_total {self.hits}\n"
            return (self.metrics + counters).encode()
        if path == "/tokenize":
            return json.dumps({"tokens": [*range(1700), body["messages"][1]["content"]]}).encode()
        took, usage, *counted = self.chats.pop(0)
        self.now += took
        for queries, hits in counted:
            self.queries, self.hits = self.queries + queries, self.hits + hits
        return json.dumps({"usage": usage}).encode()


def proof(monkeypatch, *chats, **fields):
    engines = Replying(*chats, **fields)
    monkeypatch.setattr("promptgroup_operator.engines.engine.time", SimpleNamespace(monotonic=lambda: engines.now))
    try:
        return engines.prove("a:1", VLLM, "llama", Prompt("the system text"))
    finally:
        engines.close()


def usage_of(prompt, cached):
    return {"prompt_tokens": prompt, "prompt_tokens_details": {"cached_tokens": cached}}


def test_a_proof_measures_the_cache_the_prefix_and_the_rate_of_the_cold_request(monkeypatch):
    page = METRICS.replace("block_size=", 'kv_cache_size_tokens="400000",block_size=')
    found = proof(monkeypatch, (0.2, usage_of(1720, 0)), (0.001, usage_of(1720, 1696)), metrics=page)
    assert (found.kv_tokens, found.shared_tokens, found.prefill_rate) == (400_000, 1700, 8_600)
    assert (found.cached_tokens, found.caching) == (1696, True)


def test_an_engine_that_was_warm_already_tells_no_rate(monkeypatch):
    assert proof(monkeypatch, (0.001, usage_of(1720, 1696)), (0.001, usage_of(1720, 1696))).prefill_rate == 0


def test_an_engine_that_does_not_say_what_was_cached_tells_no_rate(monkeypatch):
    found = proof(monkeypatch, (0.2, {"prompt_tokens": 1720}), (0.001, {"prompt_tokens": 1720}))
    assert (found.prefill_rate, found.cached_tokens) == (0, None)


def test_an_engine_that_counts_but_does_not_say_is_measured_by_its_counters(monkeypatch):
    told = {"prompt_tokens": 1720}
    found = proof(monkeypatch, (0.2, told, (1720, 0)), (0.001, told, (1720, 1696)))
    assert (found.prefill_rate, found.cached_tokens) == (8_600, 1696)


@pytest.mark.parametrize("tokens", ["many", None, [1]])
def test_usage_that_is_no_count_is_no_crash(monkeypatch, tokens):
    found = proof(monkeypatch, (0.2, {"prompt_tokens": tokens}), (0.1, {"prompt_tokens": tokens}))
    assert (found.prompt_tokens, found.prefill_rate) == (0, 0)


def test_what_a_proof_added_to_the_engines_counters_is_known_exactly(monkeypatch):
    assert proof(monkeypatch, (0.2, usage_of(1720, 0)), (0.1, usage_of(1720, 1696))).spent == Spent(3440, 1696, 2)


def test_hits_that_the_engine_does_not_tell_of_are_not_guessed(monkeypatch):
    assert proof(monkeypatch, (0.2, usage_of(1720, 0)), (0.1, {"prompt_tokens": 1720})).spent == Spent(3440, None, 2)


TOUCHES = {
    "a prefix in place takes one request": ([usage_of(1720, 1696)], (1696, 1696), Spent(1720, 1696, 1)),
    "one that is gone is computed again, and looked for": (
        [usage_of(1720, 32), usage_of(1720, 1696)],
        (32, 1696),
        Spent(3440, 1728, 2),
    ),
    "one that is gone again is told": ([usage_of(1720, 32), usage_of(1720, 0)], (32, 0), Spent(3440, 32, 2)),
    "an engine that does not tell is asked once": ([{"prompt_tokens": 1720}], (None, None), Spent(1720, None, 1)),
}


@pytest.mark.parametrize("case", TOUCHES)
def test_a_touch(case):
    usages, (cached, then), spent = TOUCHES[case]
    engines = Replying(*((0, usage) for usage in usages))
    try:
        found = engines.refresh("a:1", VLLM, "llama", Prompt("the system text"), 1696)
    finally:
        engines.close()
    assert found == RefreshAnswer(engine_metrics.reading(METRICS, VLLM.metrics), cached, then, spent)
    assert engines.chats == []


class Speaking(EngineClient):
    """An engine of another dialect: pages of metrics in turn (None: refused), usages in turn, a state."""

    def __init__(self, pages, usages, state=None):
        super().__init__()
        self.pages, self.usages, self.state = list(pages), list(usages), state

    def _request(self, method, address, path, body, *, seconds, limit, rank=None):
        if path in (SGLANG.metrics.path, TENSORRT_LLM.metrics.path):
            page = self.pages.pop(0) if len(self.pages) > 1 else self.pages[0]
            return (page or "").encode()
        if path == SGLANG.state and self.state is not None:
            return json.dumps(self.state).encode()
        if path == "/v1/chat/completions":
            return json.dumps({"usage": self.usages.pop(0)}).encode()
        raise EngineError(f"{path}: status 404", status=404)


def proved(dialect, *args, **fields):
    engines = Speaking(*args, **fields)
    try:
        return engines.prove("a:1", dialect, "llama", Prompt("the system text")), engines
    finally:
        engines.close()


SGLANG_PAGE = "sglang:page_size 16\nsglang:max_total_num_tokens 6400\n"


def test_sglangs_settings_say_that_prefix_caching_is_off():
    found, _ = proved(SGLANG, [SGLANG_PAGE], [], state={"disable_radix_cache": True, "api_key": "x"})
    assert (found.caching, found.step) == (False, 16)


@pytest.mark.parametrize("state", [{"disable_radix_cache": False}, {}, None], ids=["on", "not said", "not served"])
def test_sglangs_proof_reads_a_cold_request_without_a_count_as_zero(state):
    found, engines = proved(SGLANG, [SGLANG_PAGE], [{"prompt_tokens": 1720}, usage_of(1720, 1696)], state=state)
    assert (found.cached_tokens, found.step, found.kv_tokens) == (1696, 16, 6400)
    assert found.spent == Spent(3440, 1696, 2)
    assert found.prefill_rate > 0
    assert engines.usages == []


def test_where_sglang_says_nothing_twice_its_counters_do():
    counted = SGLANG_PAGE + "sglang:prompt_tokens_total {}\nsglang:cached_tokens_total {}\n"
    pages = [SGLANG_PAGE, counted.format(1720, 0), counted.format(3440, 0)]
    found, _ = proved(SGLANG, pages, [{"prompt_tokens": 1720}, {"prompt_tokens": 1720}])
    assert found.cached_tokens == 0


def test_an_engine_whose_gauges_appear_with_the_first_request_is_read_after_it():
    page = "trtllm_prompt_tokens_total 1720\ntrtllm_kv_cache_tokens_per_block 32\ntrtllm_kv_cache_max_blocks 100\n"
    found, _ = proved(TENSORRT_LLM, [None, page], [usage_of(1720, 0), usage_of(1720, 1696)])
    assert (found.step, found.kv_tokens, found.cached_tokens) == (32, 3200, 1696)


SILENT = {"prompt_tokens": 1720}
SGLANG_TOUCHES = {
    "a prefix in place takes one request": ([usage_of(1720, 1696)], (1696, 1696), Spent(1720, 1696, 1)),
    "nothing said and then a number: it was gone": ([SILENT, usage_of(1720, 1696)], (0, 1696), Spent(3440, 1696, 2)),
    "nothing said twice is not known": ([SILENT, SILENT], (None, None), Spent(3440, None, 2)),
}


@pytest.mark.parametrize("case", SGLANG_TOUCHES)
def test_a_touch_of_an_engine_that_leaves_a_zero_out(case):
    usages, (cached, then), spent = SGLANG_TOUCHES[case]
    engines = Speaking([SGLANG_PAGE], usages)
    try:
        found = engines.refresh("a:1", SGLANG, "llama", Prompt("the system text"), 1696)
    finally:
        engines.close()
    assert (found.cached, found.then, found.spent) == (cached, then, spent)
    assert engines.usages == []


# --- hostile engines -----------------------------------------------------------------------------------------------

PROMPT = Prompt("the system text")


@pytest.mark.heavy
@pytest.mark.parametrize("answer", HOSTILE)
def test_every_exchange_with_a_hostile_engine_ends(answer, monkeypatch):
    for limit in ("ASK_SECONDS", "PREFILL_SECONDS"):
        monkeypatch.setattr(engine, limit, 0.2)
    engines = EngineClient()
    try:
        with hostile_server(HOSTILE[answer]) as address:
            for ask in (
                lambda: engines.read(address, VLLM),
                lambda: engines.prove(address, VLLM, "llama", PROMPT),
                lambda: engines.refresh(address, VLLM, "llama", PROMPT, 10),
            ):
                with pytest.raises(EngineError):
                    ask()
    finally:
        engines.close()


def answering(head, body):
    return lambda connection, over: connection.sendall(
        b"HTTP/1.1 200 OK\r\n%bContent-Length: %d\r\nConnection: close\r\n\r\n" % (head, len(body)) + body
    )


BODIES = {
    "nested lists": b"[" * 60_000,
    "nested objects": b'{"usage":' * 7_000,
    "a number of 60,000 digits": b'{"usage":{"prompt_tokens":' + b"9" * 60_000 + b"}}",
    "not UTF-8": b'{"usage":"\xff\xfe"}',
    "a list": b"[1]",
    "longer than a chat answer": b" " * (engine.MAX_CHAT + 1),
    "nothing": b"",
}


@pytest.mark.parametrize("body", BODIES)
def test_a_chat_answer_that_is_no_answer_is_an_error_without_its_text(body):
    engines = EngineClient()
    try:
        with hostile_server(answering(b"", BODIES[body])) as address, pytest.raises(EngineError) as refused:
            engines._chat(address, {})
    finally:
        engines.close()
    assert len(str(refused.value)) < 100
    assert refused.value.__cause__ is None


@pytest.mark.heavy
def test_an_answer_is_never_decompressed():
    bomb = gzip.compress(b"vllm:prefix_cache_queries_total 1\n" + b" " * (64 << 20))
    engines = EngineClient()
    try:
        with hostile_server(answering(b"Content-Encoding: gzip\r\n", bomb)) as address, pytest.raises(EngineError):
            engines.read(address, VLLM)
    finally:
        engines.close()


@pytest.mark.parametrize("count", [True, -1, 10**12, 1.5, "7", None, [7]])
def test_a_count_of_tokens_that_no_engine_made_is_unknown(count):
    assert _cached_tokens(VLLM, {"prompt_tokens_details": {"cached_tokens": count}}) == [None]
    assert engine._prompt_tokens({"prompt_tokens": count}) == 0


# --- KV tiers ----------------------------------------------------------------------------------------------


class Pooled(EngineClient):
    """A vLLM with a pool: answers in turn, each with its usage, what the pool brought, and others' prompt tokens."""

    def __init__(self, *chats):
        super().__init__()
        self.chats, self.queries, self.hits, self.tiered = list(chats), 0, 0, 0

    def _request(self, method, address, path, body, *, seconds, limit, rank=None):
        if path == "/metrics":
            counters = (
                f"vllm:prefix_cache_queries_total {self.queries}\nvllm:prefix_cache_hits_total {self.hits}\n"
                f"vllm:external_prefix_cache_hits_total {self.tiered}\n"
            )
            return (METRICS.splitlines()[-1] + "\n" + counters).encode()
        if path == "/tokenize":
            return json.dumps({"tokens": [*range(1700), body["messages"][1]["content"]]}).encode()
        cached, tiered, others, others_tiered = (*self.chats.pop(0), 0, 0)[:4]
        self.queries, self.hits = self.queries + 1720 + others, self.hits + cached - tiered
        self.tiered += tiered + others_tiered
        return json.dumps({"usage": usage_of(1720, cached)}).encode()


def of_pool(ask, *chats):
    engines = Pooled(*chats)
    try:
        return ask(engines)
    finally:
        engines.close()


def prove(engines):
    return engines.prove("a:1", VLLM, "llama", Prompt("the system text"))


def test_a_proof_tells_what_the_warm_up_copied_from_what_the_probe_found():
    found = of_pool(prove, (1536, 1536), (1696, 0))
    assert (found.copied, found.cached_tokens, found.tiered) == (1536, 1696, 0)
    assert found.spent == Spent(3440, 3232, 2, 1536)


def test_a_proof_tells_what_the_probe_itself_got_from_a_tier():
    found = of_pool(prove, (0, 0), (1696, 1536))
    assert (found.copied, found.cached_tokens, found.tiered) == (0, 1696, 1536)


def refreshed(*chats, any_tier=False):
    return of_pool(lambda engines: engines.refresh("a:1", VLLM, "llama", Prompt("x"), 1696, any_tier=any_tier), *chats)


def test_a_prefix_that_only_a_tier_still_had_was_lost_by_the_gpu_and_is_there_again():
    found = refreshed((1696, 1536), (1696, 0))
    assert (found.cached, found.then, found.copied) == (160, 1696, 1536)
    assert found.spent == Spent(3440, 3392, 2, 1536)


def test_a_prefix_in_the_gpu_is_looked_for_once_whatever_tiers_there_are():
    found = refreshed((1696, 0))
    assert (found.cached, found.then, found.copied, found.spent.requests) == (1696, 1696, 0, 1)


def test_where_any_tier_counts_nothing_was_lost():
    found = refreshed((1696, 1536), any_tier=True)
    assert (found.cached, found.then, found.spent.requests) == (1696, 1696, 1)


def test_while_a_tier_works_for_clients_nobody_knows_where_the_prefix_was():
    found = refreshed((1696, 0, 4000, 3072), (1696, 0))
    assert (found.cached, found.then) == (None, None)


@pytest.mark.parametrize(
    ("answer", "emptied"),
    [
        (b'{"success":true}', True),
        (b'{ "success": false }\n', False),
        (b"Cache flushed.\n", True),
        (EngineError("/flush_cache: status 400", status=400), False),
    ],
    ids=["vLLM", "vLLM, blocks are held", "SGLang", "SGLang, requests run"],
)
def test_an_engine_that_works_does_not_empty_its_cache_and_says_so(monkeypatch, answer, emptied):
    def request(*_, **__):
        if isinstance(answer, EngineError):
            raise answer
        return answer

    client = EngineClient()
    monkeypatch.setattr(client, "_request", request)
    assert client.reset("127.0.0.1:1", VLLM) is emptied


def test_an_engine_without_a_way_to_empty_its_cache_is_an_error(monkeypatch):
    client = EngineClient()
    with pytest.raises(EngineError, match="no way"):
        client.reset("127.0.0.1:1", TENSORRT_LLM)
    monkeypatch.setattr(client, "_request", lambda *_, **__: (_ for _ in ()).throw(EngineError("x", status=404)))
    with pytest.raises(EngineError):
        client.reset("127.0.0.1:1", VLLM)


class Ranked(EngineClient):
    """An engine with two ranks, each with a cache; `heeds` says if it goes by the rank that is named."""

    def __init__(self, *, heeds=True):
        super().__init__()
        self.heeds, self.named = heeds, []
        self.queries, self.hits, self.has = [0, 0], [0, 0], [False, False]

    def _request(self, method, address, path, body, *, seconds, limit, rank=None):
        if path == "/metrics":
            lines = [
                f'vllm:{name}_total{{engine="{number}"}} {values[number]}\n'
                for number in (0, 1)
                for name, values in (("prefix_cache_queries", self.queries), ("prefix_cache_hits", self.hits))
            ]
            size = 'kv_cache_size_tokens="{}",block_size="16"'
            sizes = [
                f'vllm:cache_config_info{{engine="{number}",{size.format(1000 * (number + 1))}}} 1\n'
                for number in (0, 1)
            ]
            return "".join([*lines, *sizes]).encode()
        if path == "/tokenize":
            return json.dumps({"tokens": [*range(160), body["messages"][1]["content"]]}).encode()
        self.named.append(rank)
        taken = rank if self.heeds and rank is not None else 0
        found = 160 if self.has[taken] else 0
        self.has[taken] = True
        self.queries[taken] += 170
        self.hits[taken] += found
        return json.dumps({"usage": usage_of(170, found)}).encode()


def test_a_proof_of_a_rank_names_it_and_reads_its_cache_alone():
    engine = Ranked()
    found = [engine.prove("a:1", VLLM, "llama", Prompt("the system text"), rank) for rank in (0, 1)]
    assert engine.named == [0, 0, 1, 1]
    assert [(each.cached_tokens, each.kv_tokens, each.ranks, each.reached) for each in found] == [
        (160, 1000, 2, True),
        (160, 2000, 2, True),
    ]
    assert engine.read("a:1", VLLM).kv_tokens == 3000
    assert engine.read("a:1", VLLM).by_rank == (340.0, 340.0)


def test_a_rank_that_takes_none_of_the_requests_that_name_it_is_told():
    engine = Ranked(heeds=False)
    found = engine.prove("a:1", VLLM, "llama", Prompt("the system text"), 1)
    assert (found.cached_tokens, found.reached) == (160, False)


def test_a_refresh_of_a_rank_names_it():
    engine = Ranked()
    found = engine.refresh("a:1", VLLM, "llama", Prompt("the system text"), 160, rank=1)
    assert engine.named == [1, 1]
    assert (found.cached, found.then, found.reading.queries) == (0, 160, 0)
