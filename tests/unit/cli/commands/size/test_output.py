import json
import math
from dataclasses import replace

import pytest

from promptgroup_cli.base.text import WIDTH
from promptgroup_cli.commands.size import output
from promptgroup_cli.commands.size.answer import PREFILL, TIER, MeasuredFigure, SizeQuestion, answer
from promptgroup_cli.forecast.catalogue import model
from promptgroup_cli.forecast.estimate import EngineEstimate, replica
from promptgroup_cli.forecast.forecast import Workload
from promptgroup_cli.forecast.gpus import gpu
from promptgroup_cli.forecast.kv import Agreement
from promptgroup_cli.forecast.model_config import ModelConfig
from promptgroup_cli.forecast.reuse import ReuseCurve
from promptgroup_cli.forecast.tiers import parse
from promptgroup_operator.sizing.limits import Limit


def asked(name="meta-llama/Llama-3.1-8B", **fields):
    engine = EngineEstimate(model(name), gpu("H100-80GB"))
    base = SizeQuestion(
        name=name,
        engine=engine,
        replica=replica(engine),
        workload=Workload(rate=100, sessions=2000, prefix=3000, history=1200, turn=100, answer=200),
        target=0.3,
        reported=None,
        assumed=("the moon is full",),
    )
    return replace(base, **fields)


QUESTIONS = {
    "usual": asked(),
    "nothing helps": asked(target=0.001),
    "overloaded": asked(workload=Workload(1e5, 1e7, 30_000, 120_000, 10_000, 20_000)),
    "windows": asked("openai/gpt-oss-120b"),
    "tiers": asked(
        tiers=tuple(map(parse, ("dram=640GiB", "nvme=20TiB", "rdma=1024TiB", "tcp=1TiB,1GB/s"))),
        reuse=ReuseCurve({1000: 50, 10**9: 100}, prompt_tokens=10**12, requests=2),
        gpu_hour=1234.5,
    ),
    "a tier that never pays": asked(target=0.001, tiers=(parse("tcp=1TiB,1GB/s"),)),
    "measured": asked(
        measured=(MeasuredFigure(PREFILL, 9e3, 0.04, (8e3, 1e4)), MeasuredFigure(TIER, 9e11, 0.25, (8e11, math.inf)))
    ),
    "a report that differs": asked(reported=Agreement(False, "the engine reports " + "much " * 40)),
}


@pytest.mark.heavy
@pytest.mark.parametrize("case", QUESTIONS)
def test_text_is_readable_at_100_columns(case):
    text = output.table(answer(QUESTIONS[case]))
    assert max(map(len, text.splitlines())) <= WIDTH
    assert not any(line.endswith(" ") for line in text.splitlines())


@pytest.mark.parametrize("limit", Limit)
def test_every_limit_has_words(limit):
    assert f"({limit})" in output.table(replace(answer(asked()), bound=limit))


@pytest.mark.heavy
@pytest.mark.parametrize("case", QUESTIONS)
def test_json_has_no_number_that_json_has_not(case):
    def refuse(constant):
        raise AssertionError(constant)

    found = answer(QUESTIONS[case])
    document = json.loads(output.document(found), parse_constant=refuse)
    assert document["replicas"] == found.replicas
    assert len(document["sensitivity"]) == len(found.cases)


def test_what_is_said_is_what_was_found():
    found = answer(asked())
    text = output.table(found)
    assert f"Replicas:     {found.expected.replicas} (hit rate {found.expected.hit_rate:.1%}" in text
    assert "Assumed:      the moon is full" in text
    assert found.pool.message in " ".join(text.split())
    assert "(DemandRose)" in text


def test_layers_that_are_counted_otherwise_are_named():
    assert "18 of 36 layers keep the last 128 tokens" in output.table(answer(QUESTIONS["windows"]))
    engine = asked().engine
    hybrid = replace(engine, model=replace(engine.model, shape=ModelConfig(12, 2, 512, constant=36)))
    assert "36 layers keep a state of constant size" in output.table(answer(asked(engine=hybrid)))


def test_a_load_that_cannot_be_served_never_has_a_first_token():
    found = answer(asked())
    never = replace(found, expected=replace(found.expected, ttft=math.inf, median=math.inf))
    assert json.loads(output.document(never))["expected"]["ttftP95"] is None
    assert "TTFT p95 never" in output.table(never)


def test_tiers_are_a_table_with_the_columns_that_were_asked_for():
    tiers = (parse("dram=64GiB"),)
    text = output.table(answer(asked(tiers=tiers)))
    assert "+ dram, 64 GiB each" in text
    assert "traced" not in text
    assert "per hour" not in text
    assert "KV pool" not in text
    found = answer(asked(tiers=tiers, gpu_hour=2.5))
    text = output.table(found)
    assert f"{found.tiers[0].needed * 2.5:,.2f}" in text
    assert json.loads(output.document(found))["tiers"][1] | {"hitRate": 0, "historiesKept": 0} == {
        "kind": "dram",
        "tokens": 524_288,
        "shared": False,
        "historiesKept": 0,
        "hitRate": 0,
        "tracedHitRate": None,
        "copySeconds": round(0.01 + 1200 * 131_072 / (0.8 * 64e9), 4),
        "breakEvenTokens": 263,
        "usesToPay": 1,
        "gpuSecondsSavedPerUse": round(1200 / found.question.replica.prefill_rate - 0.01 - 1200 * 131_072 / 51.2e9, 4),
        "savedPerThousandUses": 0.02,
        "replicas": found.tiers[1].needed,
        "pricePerHour": found.tiers[1].needed * 2.5,
    }


def test_what_uses_of_a_tier_save_is_told_and_that_a_slow_one_saves_nothing():
    told = {
        price: " ".join(output.table(answer(asked(tiers=(parse("dram=64GiB"),), gpu_hour=price))).split())
        for price in (None, 2.5)
    }
    assert "worth: dram: written once, the mean history has paid with use 1 Last" in told[None]
    assert "has paid with use 1; 1,000 uses save 0.02 of GPU time, their copies taken off" in told[2.5]
    slow = answer(asked(tiers=(parse("tcp=1TiB,1Gbit/s"),), gpu_hour=2.5))
    assert "tcp: a copy of the mean history takes longer than computing it" in " ".join(output.table(slow).split())
    row = json.loads(output.document(slow))["tiers"][1]
    assert row["usesToPay"] is None
    assert row["savedPerThousandUses"] < 0


def test_tokens_that_fill_no_block_have_a_price():
    workload = asked().workload
    assert "fills whole blocks of 16 tokens" in output.table(answer(asked(workload=replace(workload, prefix=2016))))
    text = " ".join(output.table(answer(asked(workload=replace(workload, prefix=2003)))).split())
    assert "3 tokens of the prompt fill no block of 16, so each session computes them once, in 0.1 ms" in text
