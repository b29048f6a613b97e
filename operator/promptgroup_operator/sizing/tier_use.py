"""Reports if a KV tier behind the GPUs' memory is useful for a group, or would be if the group had one.

tiers   observation                                                            reason
on      tiers supplied prompt tokens that the GPUs' memory had evicted         TierInUse
on      tiers supplied almost no tokens                                        TierIdle
off     many of the computed tokens had been evicted, and were reused soon     TierWouldHelp
off     otherwise                                                              TierNotNeeded

"Soon" is a reuse distance, for which routers estimate an upper bound (`promptgroup_router.placement.misses`): with
least recently used eviction, a memory of that size would have held the tokens (Mattson et al. 1970).
"""

from itertools import accumulate
from typing import Final

from promptgroup_contract import names
from promptgroup_operator.sizing.diagnosis import Diagnosis
from promptgroup_operator.sizing.model import TIERED
from promptgroup_operator.world.load import ClientLoad, EngineLoad, GroupLoad, TierReach

WORTH = 0.2
"""Minimum share of the computed prompt tokens that a tier must save to be recommended: a fifth of the prefill."""
STAYS = 0.1
"""The same minimum share for a tier that is already recommended (hysteresis)."""
LEAST = 0.02
"""Minimum share of all prompt tokens that a tier must save: where few are computed, a fifth of them is negligible."""
MOST = 0.8
"""The recommended tier is the smallest that would have held this share of the tokens held by the largest tier."""

WOULD_HELP: Final = "TierWouldHelp"
STANDING: Final = {"TierInUse": True, "TierIdle": False, WOULD_HELP: True, "TierNotNeeded": False}
"""Reason → status, for the reasons that stay in place while there are no requests."""


def tier_use(load: GroupLoad | None, before: str) -> Diagnosis | None:
    """Return the usefulness of a tier, present or not; None while there is no data and no earlier diagnosis.

    Args:
        load: the observed load.
        before: the reason that was reported last; empty at first.
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
    caches, held = next((band, tokens) for band, tokens in bands if tokens >= MOST * useful)
    size = f", {int(caches) * engines.kv_tokens:,} tokens for each replica," if engines.kv_tokens else ""
    text = f"a KV tier of {caches} times the GPUs' cache{size} would have found {_share(held, evicted)} of them"
    return Diagnosis(True, WOULD_HELP, f"{message}; {text}")


def _share(part: float, whole: float) -> str:
    return f"{min(1.0, part / whole) if whole > 0 else 0.0:.0%}"
