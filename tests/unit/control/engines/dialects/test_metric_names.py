import re
from dataclasses import fields
from pathlib import Path

import pytest

from promptgroup_operator.engines import engine_metrics
from promptgroup_operator.engines.dialects.metric_names import Spellings
from promptgroup_operator.engines.dialects.sglang import METRICS as SGLANG
from promptgroup_operator.engines.dialects.tensorrt_llm import METRICS as TENSORRT_LLM
from promptgroup_operator.engines.dialects.vllm import METRICS as VLLM

OFFLOADED = frozenset(
    name for names in (VLLM, SGLANG) for name in (*names.memory_usage, *names.memory_used, *names.memory_size)
)
"""Only an engine with a KV tier in main memory has them."""
EVERY = {"vllm:": VLLM, "sglang:": SGLANG, "trtllm_": TENSORRT_LLM}


@pytest.mark.parametrize("prefix", EVERY)
def test_every_name_is_the_engines_and_counters_end_as_on_the_wire(prefix):
    names = EVERY[prefix]
    assert all(name.startswith(prefix) for name in (*names.spelled(), names.first_token))
    counters = (*names.queries, *names.hits, *names.by_source, *names.generated, *names.requests, *names.preemptions)
    assert all(name.endswith("_total") for name in counters)
    sums = (*names.computed, *names.prefill_seconds, *names.decode_seconds, *names.queue_seconds)
    assert all(name.endswith("_sum") for name in sums)


@pytest.mark.parametrize("prefix", EVERY)
def test_what_every_load_needs_has_a_name_in_every_engine(prefix):
    names = EVERY[prefix]
    assert all((names.queries, names.hits, names.requests, names.running, names.waiting, names.usage))


VLLM_PAGE = (Path(__file__).parents[1] / "pages" / "vllm-0.32.txt").read_text()
"""Of one of the two engines of `make demo-vllm-diagnosis`, at its end."""


def test_a_real_vllm_has_every_name_of_today():
    written = {re.match(r"[\w:]+", line)[0] for line in VLLM_PAGE.splitlines() if not line.startswith("#")}
    spelled = (getattr(VLLM, field.name) for field in fields(VLLM) if field.type is Spellings)
    today = {spellings[0] for spellings in spelled if spellings} - OFFLOADED
    assert len(today) == 14
    assert today | {f"{VLLM.first_token}_bucket", VLLM.info} <= written
    (info,) = (line for line in VLLM_PAGE.splitlines() if line.startswith(VLLM.info))
    labels = {VLLM.caching_label, VLLM.kv_tokens_label, VLLM.blocks_label, VLLM.block_size_label, *VLLM.step_labels}
    assert labels <= set(re.findall(r'(\w+)="', info))


SGLANG_PAGE = (Path(__file__).parents[1] / "pages" / "sglang-0.5.23.txt").read_text()
"""Of an engine with a KV cache of 10,240 tokens, after more than they."""
LATE = {"sglang:num_retracted_requests_total"}
"""Appears with the first request that is taken back."""


def test_a_real_sglang_has_every_name_of_today():
    written = {re.match(r"[\w:]+", line)[0] for line in SGLANG_PAGE.splitlines() if not line.startswith("#")}
    spelled = (getattr(SGLANG, field.name) for field in fields(SGLANG) if field.type is Spellings)
    today = {spellings[0] for spellings in spelled if spellings} - LATE - OFFLOADED
    assert len(today) == 14
    assert today | {f"{SGLANG.first_token}_bucket"} <= written


def test_a_real_sglang_is_read_whole_with_both_kinds_of_answers():
    found = engine_metrics.reading(SGLANG_PAGE, SGLANG)
    assert (found.queries, found.hits, found.generated, found.requests) == (27_131, 1843, 1582, 32)
    assert found.computed == found.queries - found.hits
    assert found.first_token.total == found.requests
    assert (found.evicted, found.tiered) == (14_781, 0)
    assert (found.step, found.caching, found.kv_tokens) == (1, None, 10_240)


def test_an_sglang_that_evicted_nothing_so_far_says_so():
    page = "\n".join(line for line in SGLANG_PAGE.splitlines() if not line.startswith("sglang:evicted"))
    assert engine_metrics.reading(page, SGLANG).evicted == 0
    assert engine_metrics.reading(VLLM_PAGE, VLLM).evicted is None  # it does not count them


def test_a_real_sglang_is_busy_while_it_computes_a_prompt_though_its_gauges_are_old():
    idle = engine_metrics.reading(SGLANG_PAGE, SGLANG)
    assert idle.busy == 0  # whoever reads the page is not counted
    active = 'sglang:http_requests_active{endpoint="/v1/chat/completions",method="POST"}'
    found = engine_metrics.reading(SGLANG_PAGE.replace(f"{active} 0.0", f"{active} 2.0"), SGLANG)
    assert (found.running, found.waiting) == (0, 0)
    assert found.busy == 2


def test_a_real_vllm_is_read_whole():
    found = engine_metrics.reading(VLLM_PAGE, VLLM)
    assert (found.queries, found.hits, found.requests, found.preemptions) == (1_624_788, 1_190_592, 538, 3)
    assert found.computed == found.queries - found.hits
    assert found.first_token.total == found.requests
    assert (found.step, found.caching, found.kv_tokens) == (32, True, 8192)
    assert None not in (found.prefill_seconds, found.decode_seconds, found.queue_seconds)
