"""The load at which an oracle's mean wait is twice the mean own prefill: the meaning of "100 %" in all tables.

A definition by the oracle is the same for all policies; by waits and not by throughput, since open loads have no
throughput to measure before they are beyond it.
"""

import math
from collections.abc import Callable
from dataclasses import replace

from promptgroup_research.experiments.catalogue import TUNING, Recorded, workload
from promptgroup_research.experiments.runs import Job, at_rate

RATIO = 2.0
SETTLED = 600.0
"""Least warm-up of an endless workload, in seconds: beyond its capacity it takes minutes to collapse."""
SPAN = 1.3
"""Factor by which the search extends below and above the guess."""
STRIDE, STRIDES = 1.5, 20
"""Search for a capacity without a guess: factor of a step, and most steps."""
PRECISION = 0.01
"""Relative width at which the search ends."""


def capacity(ratio: Callable[[float], float], low: float, high: float) -> float:
    """The rate at which `ratio` (of wait to own prefill, growing with the rate) passes `RATIO`, by bisection."""
    while high - low > PRECISION * low:
        middle = (low + high) / 2
        if ratio(middle) < RATIO:
            low = middle
        else:
            high = middle
    return (low + high) / 2


def measured(job: Job, guess: float) -> float:
    """The capacity of a job's workload, near a guess, over the seeds for tuning."""
    kind = workload(job.workload, job.recorded)
    settle = 0.0 if kind.whole else max(0.0, SETTLED - kind.warm_up)

    def ratio(rate: float) -> float:
        runs = [at_rate(Job(job.workload, "oracle", 1.0, seed, recorded=job.recorded), rate, settle) for seed in TUNING]
        return sum(run.wait for run in runs) / sum(run.own for run in runs)

    return capacity(ratio, guess / SPAN, guess * SPAN)


def of_file(recorded: Recorded) -> Recorded:
    """Return a trace with its capacity, for which there is no guess.

    One seed is enough: it moves the requests of a trace within their batches alone. The search begins at the rate that
    replicas could serve without any cache hits.
    """
    kind = workload("trace", recorded)
    turns = [turn for session in kind.write(1.0, math.inf, TUNING[0]) for turn in session.turns]
    rate = kind.replicas * len(turns) / sum(kind.model.prefill(0, turn.prompt) for turn in turns)

    def ratio(rate: float) -> float:
        figures = at_rate(Job("trace", "oracle", 1.0, TUNING[0], recorded=recorded), rate)
        return figures.wait / figures.own if figures.own else math.inf  # all arrived during the warm-up

    return replace(recorded, capacity=capacity(ratio, *around(ratio, rate)))


def around(ratio: Callable[[float], float], rate: float) -> tuple[float, float]:
    """Return a rate below and one above the capacity, a factor of `STRIDE` apart, from any rate."""
    if ratio(rate) < RATIO:
        for _ in range(STRIDES):
            rate *= STRIDE
            if ratio(rate) >= RATIO:
                break
        return rate / STRIDE, rate
    for _ in range(STRIDES):
        rate /= STRIDE
        if ratio(rate) < RATIO:
            break
    return rate, rate * STRIDE
