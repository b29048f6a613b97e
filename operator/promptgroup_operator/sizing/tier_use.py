"""Says whether a KV tier behind the GPUs' memory does something for a group, or would if it had one.

tiers   what was seen                                                          then
on      they brought prompt tokens that the GPUs' memory had lost             TierInUse
on      they brought next to nothing                                           TierIdle
off     much of what was computed had been evicted, and was used again soon    TierWouldHelp
off     else                                                                   TierNotNeeded

How soon is a reuse distance, which routers estimate from above (`promptgroup_router.policy.misses`): with eviction of
what was unused for longest, a memory of that size would have held it (Mattson et al. 1970).
"""

from itertools import accumulate
from typing import Final

from promptgroup_contract import names
from promptgroup_operator.sizing.diagnosis import Diagnosis
from promptgroup_operator.sizing.model import TIERED
from promptgroup_operator.world.load import ClientLoad, EngineLoad, GroupLoad, TierReach

WORTH = 0.2
"""Share of the computed prompt tokens that a tier must save to be told of: a fifth of the prefill."""
STAYS = 0.1
"""The same share from which on what was told stands."""
LEAST = 0.02
"""Share of all prompt tokens that a tier must save: where hardly anything is computed, a fifth of it is nothing."""
MOST = 0.8
"""Share of what the largest tier would find that the tier which is named finds."""

WOULD_HELP: Final = "TierWouldHelp"
STANDING: Final = {"TierInUse": True, "TierIdle": False, WOULD_HELP: True, "TierNotNeeded": False}
"""Reason → status of what holds on while nobody asks for anything."""


def tier_use(load: GroupLoad | None, before: str) -> Diagnosis | None:
    """Return what a tier does or would do; None while nothing is known and nothing was.

    Args:
        load: what was observed.
        before: the reason that was told last; empty at first.
    """
    engines = load.engines if load is not None and not load.stale else None
    if load is None or engines is None or engines.queries <= 0:
        if before not in STANDING:
            return None
        return Diagnosis(STANDING[before], before, "no request reached an engine lately")
    if load.tiers is TierReach.UNSEEN:
        return Diagnosis(None, "TierUnseen", "the engines do not say what their KV tiers bring")
    if load.tiers is not TierReach.NONE:
        return _of_tiers(engines, load.clients)
    if load.clients is None:
        return Diagnosis(None, "RoutersUnknown", "no router reports what engines had evicted")
    return _without_tiers(engines, load.clients, before)


def _of_tiers(engines: EngineLoad, clients: ClientLoad | None) -> Diagnosis:
    lost = sum(clients.evicted) / engines.queries if clients is not None else 0.0
    still = f"; {lost:.0%} of the tokens had been evicted and were in no tier" if lost >= TIERED else ""
    brought = engines.tiered / engines.queries
    if brought >= TIERED:
        return Diagnosis(True, "TierInUse", f"KV tiers brought {brought:.0%} of the prompt tokens{still}")
    if still:
        return Diagnosis(False, "TierIdle", f"KV tiers supplied almost no tokens{still}: check that they are reachable")
    return Diagnosis(False, "TierIdle", "KV tiers supplied almost no tokens: the GPUs' memory holds what repeats")


def _without_tiers(engines: EngineLoad, clients: ClientLoad, before: str) -> Diagnosis:
    computed = max(0.0, engines.queries - engines.hits)
    evicted = sum(clients.evicted)
    useful = sum(clients.evicted[:-1])
    share = useful / computed if computed else 0.0
    message = f"{_share(evicted, computed)} of the prompt tokens that were computed had been evicted"
    if useful < LEAST * engines.queries or share < (STAYS if before == WOULD_HELP else WORTH):
        far = f", {_share(evicted - useful, evicted)} of them too long ago for a tier" if evicted > useful else ""
        return Diagnosis(False, "TierNotNeeded", message + far)
    bands = zip(names.EVICTED_WITHIN, accumulate(clients.evicted[:-1]), strict=False)
    caches, kept = next((band, tokens) for band, tokens in bands if tokens >= MOST * useful)
    size = f", {int(caches) * engines.kv_tokens:,} tokens for each replica," if engines.kv_tokens else ""
    text = f"a KV tier of {caches} times the GPUs' cache{size} would have found {_share(kept, evicted)} of them"
    return Diagnosis(True, WOULD_HELP, f"{message}; {text}")


def _share(part: float, whole: float) -> str:
    return f"{min(1.0, part / whole) if whole > 0 else 0.0:.0%}"
