"""A sizing as text of 100 columns, or as JSON. Pure."""

import json
import math
import textwrap
from collections.abc import Iterator, Sequence

from promptgroup_cli.forecast.forecast import Expectation
from promptgroup_cli.reach.size_answer import MOST, SizeAnswer, SizeCase
from promptgroup_operator.sizing.limits import UTILISATION, Limit

COLUMNS = 100
"""Width of the text."""


def table(answer: SizeAnswer) -> str:
    """For people."""
    return "\n".join((*_facts(answer), "", *_verdict(answer), "", *_cases(answer.cases), "", *_notes(answer)))


def document(answer: SizeAnswer) -> str:
    """For programs; times in seconds, shares 0 to 1, null for what cannot be served."""
    question, workload = answer.question, answer.question.workload
    return json.dumps(
        {
            "model": question.name,
            "gpu": question.engine.gpu.name,
            "tensorParallelSize": question.engine.gpus,
            "kv": {
                "bytesPerToken": question.engine.token_bytes,
                "tokensPerReplica": question.replica.kv_tokens,
                "asComputed": question.reported.agrees if question.reported is not None else None,
                "workingSetTokens": round(answer.working_set.sessions),
            },
            "prefillTokensPerSecond": round(question.replica.prefill_rate),
            "workload": {
                "requestsPerSecond": workload.rate,
                "sessions": workload.sessions,
                "promptTokens": workload.prefix,
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
            "kvPool": {"pays": answer.offload.pays, "message": answer.offload.message} if answer.offload else None,
            "assumed": list(question.assumed),
        },
        indent=2,
    )


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


def _facts(answer: SizeAnswer) -> Iterator[str]:
    question, workload = answer.question, answer.question.workload
    engine, shape = question.engine, question.engine.model.shape
    gpus = f"{engine.gpus} x {engine.gpu.name}" if engine.gpus > 1 else engine.gpu.name
    held = answer.working_set.sessions
    yield f"{question.name}, a replica on {gpus}"
    yield ""
    yield (
        f"KV cache     {engine.token_bytes:,} bytes a token ({engine.kv_dtype}), "
        f"{question.replica.kv_tokens:,} tokens a replica"
    )
    if shape.windowed:
        layers = shape.full + shape.windowed
        yield f"             {shape.windowed} of {layers} layers keep the last {shape.window:,} tokens of a session"
    if shape.constant:
        yield f"             and {shape.constant} layers a state of constant size, which is not counted here"
    yield f"prefill      {question.replica.prefill_rate:,.0f} tokens/s a replica"
    yield (
        f"a request    {workload.prefix:,} prompt + {workload.history:,.0f} history + {workload.turn:,.0f} turn "
        f"tokens, answer {workload.answer:,.0f}"
    )
    yield f"working set  {workload.sessions:,.0f} sessions: {_tokens(held, engine.token_bytes)}"
    yield f"             and the prompt in each replica: {_tokens(workload.prefix, engine.token_bytes)}"


def _tokens(count: float, each: int) -> str:
    return f"{count:,.0f} tokens, {count * each / 1e9:,.2f} GB"


_BOUNDS = {
    Limit.UTILISATION: f"would be busy for more than {UTILISATION:.0%} of the time",
    Limit.FIRST_TOKEN: "would miss the target",
    Limit.WORKING_SET: "would not have the KV cache for all sessions",
    Limit.QUEUE: "would queue",
}
"""What fewer replicas do."""


def _verdict(answer: SizeAnswer) -> Iterator[str]:
    expected, target = answer.expected, answer.question.target
    figures = (
        f"hit rate {expected.hit_rate:.1%}, TTFT p95 {time(expected.ttft)} (target {time(target)}), "
        f"KV use {expected.use:.0%}, busy {expected.utilization:.0%}"
    )
    if answer.replicas is not None:
        yield f"replicas: {answer.replicas}   {figures}"
        if answer.bound is not None:
            yield f"             fewer {_BOUNDS[answer.bound]} ({answer.bound})"
    else:
        yield from wrapped(
            f"no number of replicas up to {MOST} keeps the target. With {expected.replicas}: {figures}; a request "
            f"computes {expected.uncached:,.0f} tokens. More GPUs a replica (--tp), shorter turns or a higher --ttft "
            "help."
        )


_HEADS = ("what if", "needs", "given", "KV use", "hit rate", "TTFT p50", "p95", "busy")
_WIDTHS = (-28, 7, 7, 8, 10, 10, 10, 8)
"""Together below COLUMNS."""


def _cases(cases: tuple[SizeCase, ...]) -> Iterator[str]:
    yield row(_HEADS, _WIDTHS)
    for case in cases:
        expected = case.expected
        yield row(
            (
                case.what,
                str(case.needed) if case.needed is not None else f">{MOST}",
                str(expected.replicas),
                f"{expected.use:.0%}",
                f"{expected.hit_rate:.1%}",
                time(expected.median),
                time(expected.ttft),
                f"{expected.utilization:.0%}",
            ),
            _WIDTHS,
        )


def row(cells: Sequence[str], widths: Sequence[int]) -> str:
    """A line of a table; a negative width is of a cell that stands to the left."""
    padded = (cell.ljust(-width) if width < 0 else cell.rjust(width) for cell, width in zip(cells, widths, strict=True))
    return "".join(padded).rstrip()


def time(seconds: float) -> str:
    """A time as people read it."""
    if math.isinf(seconds):
        return "never"
    return f"{seconds * 1000:,.0f} ms" if seconds < 10 else f"{seconds:,.0f} s"


def _notes(answer: SizeAnswer) -> Iterator[str]:
    yield "needs: replicas that keep the target and the operator's limits; figures: with the replicas given"
    if answer.offload is not None:
        yield from wrapped(f"KV pool: {answer.offload.message}")
    if answer.question.reported is not None:
        yield from wrapped(f"KV cache: {answer.question.reported.message}")
    for sentence in answer.question.assumed:
        yield from wrapped(f"assumed: {sentence}")


def wrapped(text: str) -> list[str]:
    """A sentence in lines."""
    return textwrap.wrap(text, COLUMNS, subsequent_indent="  ", break_on_hyphens=False)
