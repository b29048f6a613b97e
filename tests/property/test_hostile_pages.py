"""Parsers of what engines, routers and Prometheus write: any text ends in a value or in the parser's own error, in time
that grows with its length and no faster."""

import contextlib
import json
import time
from dataclasses import replace
from datetime import timedelta

import pytest
from hypothesis import given
from hypothesis import strategies as st

from promptgroup_contract import names
from promptgroup_operator.api.prompt_group import EngineType
from promptgroup_operator.base.errors import EngineError
from promptgroup_operator.engines import exposition
from promptgroup_operator.engines.dialects.registry import DIALECTS
from promptgroup_operator.engines.dialects.sglang import METRICS as SGLANG
from promptgroup_operator.engines.dialects.tensorrt_llm import METRICS as TENSORRT_LLM
from promptgroup_operator.engines.dialects.vllm import METRICS as VLLM
from promptgroup_operator.engines.engine_metrics import reading
from promptgroup_operator.load import promql, router_metrics
from promptgroup_operator.load.engine_history import EngineHistory
from promptgroup_operator.plan.plan import decide
from promptgroup_operator.world.engine_facts import Measured
from promptgroup_operator.world.snapshot import Key, LastSeen
from support.builders import NOW, group, pod, revision, world
from support.examples import examples
from support.hostile_pages import NAME, QUERIES, ROUTER, SHAPES

SMALL, LARGE = 64 * 1024, 512 * 1024
LINEAR = 4.0
"""Most that eight times the text may cost beyond eight times the time: caches and the clock, not a square (8 more)."""


def cpu(parse, page):
    """Least CPU time of several tries, in seconds: noise only adds."""
    least = float("inf")
    for _ in range(4):
        began = time.thread_time()
        parse(page)
        least = min(least, time.thread_time() - began)
    return max(least, 2e-4)


def read_engine(page):
    with contextlib.suppress(EngineError):
        reading(page, VLLM)


def read_router(page):
    router_metrics.parse(page, lambda namespace: True)


def unlimited(page):
    """Every label of every line, of whatever length: what the limit on lines would hide."""
    for line in page.split("\n"):
        exposition._sample(line)


@pytest.mark.heavy
@pytest.mark.parametrize("shape", SHAPES)
@pytest.mark.parametrize(
    ("parse", "name"),
    [(read_engine, NAME), (read_engine, QUERIES), (read_router, ROUTER), (unlimited, NAME)],
    ids=["engine info", "engine counter", "router", "no limit"],
)
def test_a_page_costs_time_in_proportion_to_its_length(shape, parse, name):
    page = SHAPES[shape]
    assert cpu(parse, page(name, LARGE)) < LINEAR * (LARGE / SMALL) * cpu(parse, page(name, SMALL))


PIECES = st.sampled_from(
    [
        *[QUERIES, NAME, ROUTER, "vllm:time_to_first_token_seconds_bucket", "sglang:num_pages", "trtllm_"],
        *['{le="', 'group="a/b"', 'revision="r"', 'turn="first"', 'le="1"', 'le="+Inf"', 'le="nan"', 'le="x"'],
        *["{", "}", '"', "\\", "=", ",", " ", "\n", "\r", "\x0b", "\x00", "\u2028", "é", "\ud800"],
        *["1", "-1", "1e308", "1e309", "nan", "+Inf", "0x1", "1_0", "9" * 400, "None", "٣"],
    ]
)
PAGES = st.lists(PIECES, max_size=60).map("".join)


@examples(400)
@given(page=PAGES)
@pytest.mark.parametrize("engine", [VLLM, SGLANG, TENSORRT_LLM], ids=["vllm", "sglang", "trtllm"])
def test_any_page_of_an_engine_is_a_reading_of_finite_numbers_or_an_error(page, engine):
    try:
        found = reading(page, engine)
    except EngineError:
        return
    for value in (found.queries, found.hits, found.running, found.usage, found.kv_tokens, *found.first_token.counts):
        assert 0 <= value < float("inf")


FIGURES = st.sampled_from(["0", "1", "0.5", "1e-9", "1e-300", "3.7", "16", "400000", "999999999999999", "1e15"])
LABELS = st.sampled_from(["0", "1", "16", "None", "0016", "999999999999"])


@st.composite
def figures(draw, engine):
    """A page with figures that no honest engine has, for some of what is read."""
    lines = [f"{name} {draw(FIGURES)}" for name in draw(st.sets(st.sampled_from(sorted(engine.spelled()))))]
    known = {*engine.step_labels, engine.kv_tokens_label, engine.blocks_label, engine.block_size_label} - {""}
    labels = ",".join(f'{label}="{draw(LABELS)}"' for label in sorted(known))
    return "\n".join([f"{engine.queries[0]} {draw(FIGURES)}", *lines, f"{engine.info}{{{labels}}} 1"]) + "\n"


@examples(200)
@given(data=st.data())
@pytest.mark.parametrize("kind", list(EngineType))
def test_no_figures_of_an_engine_end_the_pass_of_its_group(data, kind):
    engine = DIALECTS[kind].metrics
    then, last = (reading(data.draw(figures(engine)), engine) for _ in range(2))
    assert min(then.step, last.step) >= 1
    measured = data.draw(st.sampled_from([Measured(), Measured(1, 1, 1, 1), Measured(10**12, 10**12, 10**12, 10**12)]))
    seen = LastSeen(NOW - timedelta(minutes=2), then, last)
    replica = replace(pod("a", 0, last_seen=seen, measured=measured), in_flight=last.busy)
    rev = revision(pods=[replica])
    key, history = Key("chat", "support"), EngineHistory()
    for seconds, each in ((40, then), (5, last)):
        history.add(replica.container_id, each, NOW - timedelta(seconds=seconds), (key, rev.fingerprint))
    found = history.found_tokens([replica.container_id])
    load = history.load((key, rev.fingerprint), {replica.container_id: NOW - timedelta(hours=1)}, measured, NOW)
    sizing = data.draw(st.sampled_from([{"replicas": 1}, {"replicas": None, "sizing": {"maxReplicas": 5}}]))
    hit_rate, tier_hit_rate = found.rates
    told = world([rev], of=group(engine={"type": kind.value}, **sizing))
    rates = {"hit_rate": hit_rate, "tier_hit_rate": tier_hit_rate, "tier_hit_rates": found.rates_by_source}
    assert decide(replace(told, load=load, **rates), NOW).status


ROUTER_LINES = st.builds(
    '{}{{group="a/b",revision="{}",{}}} {}\n'.format,
    st.sampled_from(
        [ROUTER, f"{names.METRIC_REVISION_FIRST_TOKEN}_bucket", names.METRIC_INFLIGHT, names.METRIC_SLOT_SESSION_TOKENS]
    ),
    st.sampled_from(["r", "s", ""]),
    st.sampled_from(
        ['slot="0"', 'slot="9999"', 'slot="-1"', 'slot="٣"', 'slot=""', 'le="1"', 'le="+Inf"', 'turn="first"']
    ),
    st.sampled_from(["1", "-1", "1e15", "1e308", "nan", "+Inf", "0x1", "9" * 400]),
)


@examples(400)
@given(page=PAGES | st.lists(ROUTER_LINES | PAGES, max_size=20).map("".join))
def test_any_page_of_a_router_is_counts_of_finite_numbers(page):
    for counts in router_metrics.parse(page, lambda namespace: True).values():
        assert 0 <= counts.requests < float("inf")
        for sample in counts.samples.values():
            for stratum in sample.values():
                assert all(0 <= each < float("inf") for each in stratum.first_token.counts)
        for slots in counts.slots.values():
            assert all(0 <= slot <= 9999 for slot in slots)
            assert all(0 <= each < float("inf") for use in slots.values() for each in (use.tokens, use.requests))


JSON = st.recursive(
    st.none() | st.booleans() | st.integers() | st.floats() | st.text(max_size=5) | st.just("NaN"),
    lambda inner: st.lists(inner, max_size=4) | st.dictionaries(st.sampled_from(["metric", "value", "a"]), inner),
    max_leaves=20,
)


@pytest.mark.heavy
@examples(400)
@given(result=JSON)
def test_any_answer_of_prometheus_is_finite_numbers_or_an_error_that_is_expected(result):
    try:
        found = promql.parse_result(json.loads(json.dumps(result)))
    except (ValueError, TypeError, KeyError, IndexError, AttributeError, OverflowError):
        return
    assert all(abs(value) < float("inf") for _, value in found)
