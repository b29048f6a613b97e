"""Reports the results of a sample of pairs for a semantic cache's threshold."""

from collections.abc import Iterator, Sequence

from promptgroup_cli.base.text import columns
from promptgroup_cli.calibration.choice import AnsweredPairs, fewest, outcome
from promptgroup_cli.calibration.pairs import Judged
from promptgroup_cli.calibration.proportions import interval

MOST_ROWS = 10
MOST_WRONG = 5
"""Wrong pairs that are shown."""


def report(
    chosen_from: Sequence[Judged], held_out: Sequence[Judged], chosen: AnsweredPairs | None, precision: float
) -> Iterator[str]:
    """Return the lines of the report.

    Args:
        chosen_from: the pairs that the threshold was chosen from.
        held_out: the other pairs.
        chosen: the pairs that the chosen threshold answers; None if none is proven.
        precision: the requested one.
    """
    everything = [*chosen_from, *held_out]
    same = sum(judged.pair.same for judged in everything)
    yield f"{len(everything)} pairs, {same} of them with one answer; {len(held_out)} are held out"
    yield ""
    yield "All pairs, with 95 % confidence intervals:"
    rows = [row(outcome(everything, threshold)) for threshold in _thresholds(everything)]
    yield from columns([("threshold", "answered", "precision", "", "hit rate", ""), *rows], right=(0, 1, 2, 4))
    yield ""
    if chosen is None:
        yield f"No threshold is proven to have a precision of {precision:g}."
        few, more = fewest(0, precision), fewest(7, precision)
        yield f"It takes {few} answered pairs without an error, or {more} with 7; half of all pairs are for the choice."
        yield "The most similar pairs that are judged to be different:"
        yield from _wrong(chosen_from)
        return
    yield f"threshold: {chosen.threshold:g}"
    yield ""
    yield f"It is the lowest with a precision of {precision:g}, with 95 % confidence. On the pairs that were held out:"
    yield from columns(
        [("answered", "precision", "", "hit rate", ""), row(outcome(held_out, chosen.threshold))[1:]], right=(0, 1, 3)
    )
    yield ""
    yield "Write it to spec.responses.semantic.threshold. It holds for these embeddings, and for questions like these."


def row(of: AnsweredPairs) -> tuple[str, ...]:
    """Return the cells of a threshold: precision among the answered, and hit rate among pairs with one answer."""
    precision, hits = interval(of.right, of.answered), interval(of.right, of.same)
    return (
        f"{of.threshold:g}",
        str(of.answered),
        f"{of.right / of.answered:.4f}" if of.answered else "-",
        f"{precision[0]:.4f} to {precision[1]:.4f}",
        f"{of.right / of.same:.3f}" if of.same else "-",
        f"{hits[0]:.3f} to {hits[1]:.3f}",
    )


def _thresholds(judged: Sequence[Judged]) -> list[float]:
    """Return thresholds between the similarities of pairs that are given, in steps of 0.01 to 0.05."""
    given = sorted(item.similarity for item in judged)
    if not given:
        return []
    top = min(100, int(given[-1] * 100))
    low = max(1, int(given[len(given) // 4] * 100))
    step = max(1, -(-(top - low) // (MOST_ROWS - 1)))
    return [value / 100 for value in range(top, low - 1, -step)]


def _wrong(judged: Sequence[Judged]) -> Iterator[str]:
    wrong = sorted((item for item in judged if not item.pair.same), key=lambda item: -item.similarity)
    for item in wrong[:MOST_WRONG]:
        yield f"  {item.similarity:.3f}  {_short(item.pair.one)} | {_short(item.pair.other)}"


def _short(text: str) -> str:
    plain = " ".join("".join(item if item.isprintable() else " " for item in text).split())
    return plain if len(plain) <= 60 else plain[:57] + "..."
