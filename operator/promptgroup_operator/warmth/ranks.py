"""Combines the proofs and refreshes of data-parallel ranks: a replica is as warm as its coldest rank.

Each rank has a KV cache of its own, and an engine chooses the rank of a request that names none. So a replica is proven
once every rank is proven by requests that name it, and only if the engine has the ranks that its arguments specify.
"""

from collections.abc import Sequence
from dataclasses import replace

from promptgroup_operator.world.engine_facts import together
from promptgroup_operator.world.snapshot import Reading, Spent
from promptgroup_operator.world.warming import Outcome, RefreshAnswer, WarmReason

NOT_REACHED = (
    "it took none of the requests that named it in the header x-data-parallel-rank: the engine does not heed that, so "
    "routers cannot choose a cache: have one rank in each replica"
)


def differ(result: int, ranks: int) -> Outcome | None:
    """Return the outcome for an engine whose metrics list other ranks than its arguments; None if they agree.

    Args:
        result: number of ranks in its metrics; 0 if they name none.
        ranks: number of ranks by the pod's arguments.
    """
    if result in (0, ranks):
        return None
    return Outcome(
        WarmReason.RANKS_DIFFER,
        f"the engine has {result} data-parallel ranks, and the arguments of its container give it {ranks}: set "
        "spec.engine.dataParallelSize to what it has, and not in its environment or a file",
    )


def of_all_ranks(outcomes: Sequence[Outcome]) -> Outcome:
    """Return the outcome of a replica from those of its ranks, in their order, up to the first that is not warm.

    The measurements are those that hold for each rank.
    """
    last = outcomes[-1]
    if len(outcomes) == 1 and last.warm:
        return last
    if not last.warm:
        return replace(last, message=f"data-parallel rank {len(outcomes) - 1}: {last.message}")
    measured = together(outcome.measured for outcome in outcomes)
    reasons = {outcome.reason for outcome in outcomes}
    if len(reasons) == 1:
        return Outcome(last.reason, f"on each of {len(outcomes)} data-parallel ranks: {outcomes[0].message}", measured)
    odd = next(index for index, item in enumerate(outcomes) if item.reason is not WarmReason.PROVEN)
    return Outcome(outcomes[odd].reason, f"data-parallel rank {odd}: {outcomes[odd].message}", measured)


def refreshed(whole: Reading, answers: Sequence[RefreshAnswer]) -> RefreshAnswer:
    """Return the answer of a replica from those of its ranks: that of the rank with the fewest cached tokens.

    Args:
        whole: the counters of all ranks together, before the first refresh.
        answers: of the ranks.
    """
    least = min(answers, key=lambda answer: (answer.cached is not None, answer.cached or 0))
    then = [answer.then for answer in answers]
    return RefreshAnswer(
        whole,
        least.cached,
        None if None in then else min(item for item in then if item is not None),
        _together([answer.spent for answer in answers]),
        copied=least.copied,
    )


def _together(spent: Sequence[Spent]) -> Spent:
    hits = [item.hits for item in spent]
    return Spent(
        sum(item.queries for item in spent),
        None if None in hits else sum(hit or 0 for hit in hits),
        sum(item.requests for item in spent),
        sum(item.tiered for item in spent),
    )
