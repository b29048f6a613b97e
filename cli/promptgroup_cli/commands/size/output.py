"""A sizing as text or as JSON."""

import json
import math
from collections.abc import Iterator, Sequence

from promptgroup_cli.base.text import columns, counted, duration, fact, facts
from promptgroup_cli.commands.size.answer import (
    MOST,
    PromptsFit,
    SizeAnswer,
    SizeCase,
    SizeQuestion,
    longest_sessions,
)
from promptgroup_cli.forecast.forecast import Expectation
from promptgroup_cli.forecast.measured import bounds
from promptgroup_cli.forecast.tiers import TierRow
from promptgroup_operator.sizing.limits import PROMPTS, UTILISATION, Limit


def table(answer: SizeAnswer) -> str:
    """Return the text for people."""
    tiers = (*_tiers(answer), "") if answer.tiers else ()
    return "\n".join((*_facts(answer), "", *_decision(answer), "", *_cases(answer.cases), "", *tiers, *_notes(answer)))


def document(answer: SizeAnswer) -> str:
    """Return the JSON for programs; seconds, shares of 0 to 1, null where the load cannot be served."""
    question, workload = answer.question, answer.question.workload
    return json.dumps(
        {
            "model": question.name,
            "gpu": question.engine.gpu.name,
            "tensorParallelSize": question.engine.gpus,
            "kv": {
                "bytesPerToken": question.engine.token_bytes,
                "tokensPerReplica": _kv_tokens(question),
                "asComputed": question.reported.agrees if question.reported is not None else None,
                "workingSetTokens": round(answer.working_set.sessions),
            },
            "maxModelLen": _longest_figures(question),
            "prefillTokensPerSecond": round(question.replica.prefill_rate),
            "workload": {
                "requestsPerSecond": workload.rate,
                "sessions": workload.sessions,
                "promptTokens": workload.prefix,
                "prompts": question.prompts.count if question.prompts is not None else 1,
                "historyTokens": workload.history,
                "turnTokens": workload.turn,
                "answerTokens": workload.answer,
            },
            "targetTTFT": question.target,
            "replicas": answer.replicas,
            "boundBy": answer.bound,
            "expected": _figures(answer.expected),
            "sensitivity": [
                {"case": case.what, "needed": case.needed, "expected": _figures(case.expected)} for case in answer.cases
            ],
            "tiers": [_tier_figures(row, question) for row in answer.tiers],
            "kvPool": {"pays": answer.pool.pays, "message": answer.pool.message} if answer.pool else None,
            "measured": [
                {
                    "figure": measured_figure.name,
                    "tokensPerSecond": round(measured_figure.rate, 1),
                    "between": bounds(measured_figure.between),
                    "error": round(measured_figure.error, 3),
                }
                for measured_figure in question.measured
            ],
            "assumed": list(question.assumed),
        },
        indent=2,
    )


def _longest_figures(question: SizeQuestion) -> dict[str, int] | None:
    longest = longest_sessions(question)
    if longest is None:
        return None
    return {"tokens": longest.length, "sessionsPerReplica": longest.fit, "workingSetTokens": round(longest.tokens)}


def _figures(expected: Expectation) -> dict[str, float | int | None]:
    return {
        "replicas": expected.replicas,
        "kvUse": round(expected.use, 4),
        "hitRate": round(expected.hit_rate, 4),
        "uncachedTokens": round(expected.uncached, 1),
        "utilization": round(expected.utilization, 4),
        "ttftP50": round(expected.median, 4) if math.isfinite(expected.median) else None,
        "ttftP95": round(expected.ttft, 4) if math.isfinite(expected.ttft) else None,
    }


def _tier_figures(row: TierRow, question: SizeQuestion) -> dict[str, str | float | int | bool | None]:
    return {
        "kind": row.tier.kind.name if row.tier is not None else "gpu",
        "tokens": round(row.tokens),
        "shared": row.tier is not None and row.tier.kind.shared,
        "historiesKept": round(row.cached_histories, 4),
        "hitRate": round(row.hit_rate, 4),
        "tracedHitRate": round(row.traced, 4) if row.traced is not None else None,
        "copySeconds": round(row.copy, 4) if row.copy is not None else None,
        "breakEvenTokens": round(row.break_even)
        if row.break_even is not None and math.isfinite(row.break_even)
        else None,
        "usesToPay": round(row.uses) if row.uses is not None and math.isfinite(row.uses) else None,
        "gpuSecondsSavedPerUse": round(row.saved, 4) if row.saved is not None else None,
        "savedPerThousandUses": _saved(row, question),
        "replicas": row.needed,
        "pricePerHour": _price(row.needed, question),
    }


def _saved(row: TierRow, question: SizeQuestion) -> float | None:
    """Return the price of the GPU time that a thousand uses of the mean history save."""
    if row.saved is None or question.gpu_hour is None:
        return None
    return round(1000 * row.saved / 3600 * question.gpu_hour, 2)


def _price(replicas: int | None, question: SizeQuestion) -> float | None:
    if replicas is None or question.gpu_hour is None:
        return None
    return round(replicas * question.engine.gpus * question.gpu_hour, 2)


def _facts(answer: SizeAnswer) -> Iterator[str]:
    question, workload = answer.question, answer.question.workload
    engine, shape = question.engine, question.engine.model.shape
    gpus = f"{engine.gpus} x {engine.gpu.name}" if engine.gpus > 1 else engine.gpu.name
    held = answer.working_set.sessions
    yield f"{question.name}, one replica on {gpus}"
    yield ""
    yield from fact(
        "KV cache",
        f"{engine.token_bytes:,} bytes per token ({engine.kv_dtype}), {_kv_tokens(question):,} tokens per replica",
    )
    if question.prompts is not None and question.prompts.count > 1:
        yield from fact("Prompts", _prompts(question.prompts))
    if shape.windowed:
        layers = shape.full + shape.windowed
        yield from fact("", f"{shape.windowed} of {layers} layers keep the last {shape.window:,} tokens of a session")
    if shape.constant:
        yield from fact("", f"{shape.constant} layers keep a state of constant size, which is not counted here")
    yield from fact("Prefill", f"{question.replica.prefill_rate:,.0f} tokens/s per replica")
    yield from fact(
        "Request",
        f"{workload.prefix:,} prompt + {workload.history:,.0f} history + {workload.turn:,.0f} turn "
        f"tokens, answer of {workload.answer:,.0f} tokens",
    )
    yield from fact("Working set", f"{workload.sessions:,.0f} sessions: {_tokens(held, engine.token_bytes)}")
    yield from fact("", f"plus the prompt in each replica: {_tokens(workload.prefix, engine.token_bytes)}")
    if (longest := longest_sessions(question)) is not None:
        yield from fact(
            "Longest",
            f"a replica holds {counted(longest.fit, 'session')} of max_model_len {longest.length:,} beside the prompt; "
            f"all {workload.sessions:,.0f} of that length are {longest.shares(held):,.1f} times the working set: "
            f"{_tokens(longest.tokens, engine.token_bytes)}",
        )


def _kv_tokens(question: SizeQuestion) -> int:
    """Return the KV cache of a replica, with the part that prompts of other groups occupy."""
    return question.prompts.kv_tokens if question.prompts is not None else question.replica.kv_tokens


def _prompts(prompts: PromptsFit) -> str:
    """Return the share of a replica's cache that the prompts of all groups occupy, with a remedy if it is too large."""
    taken = f"{prompts.count:,} of them take {prompts.tokens:,} tokens of each replica ({prompts.share:.0%})"
    if prompts.fits:
        return f"{taken}; more than {PROMPTS:.0%} would leave sessions too little (PromptsOutgrowCache)"
    out = "keep each on fewer replicas (spec.placement), or use more hosts"
    return f"{taken}, and more than {PROMPTS:.0%} leaves sessions too little (PromptsOutgrowCache): {out}"


def _tokens(count: float, item: int) -> str:
    return f"{count:,.0f} tokens, {count * item / 1e9:,.2f} GB"


_BOUNDS = {
    Limit.UTILISATION: f"would be busy for more than {UTILISATION:.0%} of the time",
    Limit.FIRST_TOKEN: "would miss the target",
    Limit.WORKING_SET: "would not have the KV cache for all sessions",
    Limit.QUEUE: "would queue",
}
"""Consequence of fewer replicas, by the limit that they would not meet."""


def _decision(answer: SizeAnswer) -> Iterator[str]:
    expected, target = answer.expected, answer.question.target
    figures = (
        f"hit rate {expected.hit_rate:.1%}, TTFT p95 {duration(expected.ttft)} (target {duration(target)}), "
        f"KV use {expected.use:.0%}, busy {expected.utilization:.0%}"
    )
    if answer.replicas is not None:
        yield from fact("Replicas", f"{answer.replicas} ({figures})")
        if answer.bound is not None:
            yield from fact("", f"fewer {_BOUNDS[answer.bound]} ({answer.bound})")
    else:
        yield from fact(
            "Replicas",
            f"no number up to {MOST} keeps the target. With {expected.replicas}: {figures}; a request computes "
            f"{expected.uncached:,.0f} tokens. More GPUs per replica (--tp), shorter turns or a higher --ttft help.",
        )


_HEADS = ("what if", "needs", "given", "KV use", "hit rate", "TTFT p50", "p95", "busy")


def _cases(cases: tuple[SizeCase, ...]) -> Iterator[str]:
    yield from columns([_HEADS, *map(_case, cases)], right=range(1, len(_HEADS)))


def _case(case: SizeCase) -> Sequence[str]:
    expected = case.expected
    return (
        case.what,
        str(case.needed) if case.needed is not None else f">{MOST}",
        str(expected.replicas),
        f"{expected.use:.0%}",
        f"{expected.hit_rate:.1%}",
        duration(expected.median),
        duration(expected.ttft),
        f"{expected.utilization:.0%}",
    )


def _tier_notes(answer: SizeAnswer) -> Iterator[str]:
    question = answer.question
    history = question.workload.history
    compute = history / question.replica.prefill_rate
    yield from fact(
        "tiers",
        f"each row adds a tier to those before it; a copy is of the mean history, {history:,.0f} tokens, which is "
        f"computed in {duration(compute)}; it pays from so many tokens on; hit rates are of the replicas as asked",
    )
    yield from facts("worth", (_worth(row, question) for row in answer.tiers if row.tier is not None))
    if question.reuse is not None:
        yield from fact(
            "traced",
            f"the share of its {question.reuse.prompt_tokens:,} prompt tokens that least-recently-used caches of the "
            f"sizes in the table find together; without bounds {question.reuse.most:.1%}",
        )


def _worth(row: TierRow, question: SizeQuestion) -> str:
    """Say after how many uses writing the mean history to a tier pays, and the savings of these uses."""
    name = row.tier.kind.name if row.tier is not None else ""
    if row.uses is None or math.isinf(row.uses):
        return f"{name}: a copy of the mean history takes longer than computing it, however often it is used"
    saved = _saved(row, question)
    price = f"; 1,000 uses save {saved:,.2f} of GPU time, their copies taken off" if saved is not None else ""
    return f"{name}: written once, the mean history has paid with use {row.uses:,.0f}{price}"


BLOCK = 16
"""Tokens of a block: vLLM's default."""


def _last_block(question: SizeQuestion) -> str:
    """Say the cost of the tokens that do not fill a block of the cache."""
    rest = question.workload.prefix % BLOCK
    if not rest:
        return f"the prompt fills whole blocks of {BLOCK} tokens"
    spent = rest / question.replica.prefill_rate
    return (
        f"{rest} tokens of the prompt fill no block of {BLOCK}, so each session computes them once, in "
        f"{spent * 1000:.1f} ms; a longer prompt that fills the block would save no more than that"
    )


def _tiers(answer: SizeAnswer) -> Iterator[str]:
    """Yield the table of tiers: all columns that have any value."""
    question = answer.question
    heads = ["KV in", "tokens", "hit rate", "traced", "copy", "pays from", "needs", "per hour"]
    rows = [[*_tier_row(row, question)] for row in answer.tiers]
    shown = [
        at
        for at in range(len(heads))
        if not (heads[at] == "traced" and question.reuse is None)
        and not (heads[at] == "per hour" and question.gpu_hour is None)
    ]
    table = [[line[at] for at in shown] for line in (heads, *rows)]
    yield from columns(table, right=range(1, len(shown)))


def _tier_row(row: TierRow, question: SizeQuestion) -> Iterator[str]:
    price = _price(row.needed, question)
    if row.tier is None:
        yield "GPU memory alone"
    else:
        yield f"+ {row.tier.kind.name}, {row.tier.size / 2**30:,.0f} GiB" + ("" if row.tier.kind.shared else " each")
    yield f"{row.tokens:,.0f}"
    yield f"{row.hit_rate:.1%}"
    yield f"{row.traced:.1%}" if row.traced is not None else "-"
    yield duration(row.copy) if row.copy is not None else "-"
    if row.break_even is None:
        yield "-"
    else:
        yield f"{row.break_even:,.0f}" if math.isfinite(row.break_even) else "never"
    yield str(row.needed) if row.needed is not None else f">{MOST}"
    yield f"{price:,.2f}" if price is not None else "-"


def _notes(answer: SizeAnswer) -> Iterator[str]:
    yield from fact(
        "needs", "replicas that keep the target and the operator's limits; the figures are of the replicas given"
    )
    if answer.tiers:
        yield from _tier_notes(answer)
    if answer.pool is not None:
        yield from fact("KV pool", answer.pool.message)
    yield from fact("Last block", _last_block(answer.question))
    if answer.question.reported is not None:
        yield from fact("KV cache", answer.question.reported.message)
    for measured_figure in answer.question.measured:
        yield from fact(
            "Measured", f"{measured_figure.name} at {measured_figure.rate:,.0f} tokens/s: {measured_figure.sureness}"
        )
    yield from facts("Assumed", answer.question.assumed)
