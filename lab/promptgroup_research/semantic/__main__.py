"""Run `python -m promptgroup_research.semantic`: precision by threshold, and the share of requests by workload."""

import argparse
import re
import sys
from array import array
from collections.abc import Iterator, Sequence
from operator import mul
from pathlib import Path

from promptgroup_cli.calibration import minilm
from promptgroup_cli.calibration.choice import AnsweredPairs, choose, outcome
from promptgroup_cli.calibration.endpoint import Embed
from promptgroup_cli.calibration.pairs import Judged, Pair, is_held_out
from promptgroup_cli.calibration.proportions import interval
from promptgroup_research.semantic import faq, intents, traps
from promptgroup_research.semantic.shares import (
    Request,
    Shares,
    agents,
    equal_prompts,
    made_up_faq,
    open_ended,
    recorded_questions,
    shares,
)

THRESHOLDS = (0.7, 0.8, 0.85, 0.9, 0.95, 0.99)
SEED = 1
COURTESIES = frozenset(("please", "hi", "hello", "hey", "thanks", "thank", "you", "the", "a", "an"))


class Remembered:
    """Embeddings, each of which is computed once."""

    def __init__(self, embed: Embed) -> None:
        self._embed = embed
        self._known: dict[str, array[float]] = {}

    def __call__(self, texts: Sequence[str]) -> "list[array[float]]":
        """Return the embeddings of texts."""
        new = [text for text in dict.fromkeys(texts) if text not in self._known]
        self._known |= zip(new, self._embed(new), strict=True)
        return [self._known[text] for text in texts]


def main() -> int:
    """Print the tables."""
    parser = argparse.ArgumentParser(prog="python -m promptgroup_research.semantic")
    parser.add_argument(
        "--intents", type=Path, metavar="CSV", help="questions with text and category: BANKING77's test.csv"
    )
    parser.add_argument("--trace", type=Path, metavar="FILE", help="a request trace in Mooncake's format")
    given = parser.parse_args()
    embed = Remembered(minilm.installed())
    sets = {"questions that sound alike": traps.pairs(), "made-up FAQ": faq.pairs(SEED)}
    recorded = intents.read(given.intents, SEED) if given.intents else []
    if recorded:
        sets["BANKING77"] = intents.pairs(recorded, embed)
    for name, pairs in sets.items():
        tell_pairs(name, pairs, embed)
    print("| workload | threshold | requests | exact alone | both: exact | semantic | wrong among the semantic |")
    print("| --- | ---: | ---: | ---: | ---: | ---: | ---: |")
    for threshold in (0.8, 0.9, 0.95):
        tell("FAQ, made up", threshold, list(made_up_faq(2000, SEED)), embed)
        tell("FAQ, made up, every second question with a slip", threshold, list(made_up_faq(2000, SEED, 0.5)), embed)
        if recorded:
            tell("FAQ, recorded (BANKING77), each asked once", threshold, list(recorded_questions(recorded)), embed)
    tell("agents with tools, one task in ten begun before", 0.8, list(agents(100, SEED)), embed)
    tell("open-ended chat that samples", 0.8, list(open_ended(400, SEED)), embed)
    if given.trace:
        with given.trace.open("rb") as lines:
            result = equal_prompts(lines)
        tell_shares("conversations, recorded (whole prompts)", "-", result, result)
    return 0


def tell_pairs(name: str, pairs: Sequence[Pair], embed: Embed) -> None:
    """Print precision and hit rate by threshold, and which thresholds are proven."""
    texts = sorted({text for pair in pairs for text in (pair.one, pair.other)})
    vectors = dict(zip(texts, embed(texts), strict=True))
    judged = [Judged(pair, sum(map(mul, vectors[pair.one], vectors[pair.other]))) for pair in pairs]
    print(f"**{name}: {len(pairs)} pairs, {sum(pair.same for pair in pairs)} with one answer**\n")
    print("| threshold | answered | precision | hit rate | equal in their words: answered | wrong |")
    print("| ---: | ---: | ---: | ---: | ---: | ---: |")
    equal = [item for item in judged if words(item.pair.one) == words(item.pair.other) != ()]
    for threshold in THRESHOLDS:
        answered, proven = outcome(judged, threshold), outcome(equal, threshold)
        cells = [str(answered.answered), *_cells(answered), str(proven.answered), str(proven.answered - proven.right)]
        print(f"| {threshold:g} | " + " | ".join(cells) + " |")
    print("\n| wanted | threshold | held-out pairs answered | precision | hit rate |")
    print("| ---: | ---: | ---: | ---: | ---: |")
    for desired in (0.9, 0.95, 0.97, 0.99):
        result = choose([item for item in judged if not is_held_out(item.pair)], desired)
        if result is None:
            print(f"| {desired:g} | none is proven | | | |")
            continue
        on_others = outcome([item for item in judged if is_held_out(item.pair)], result.threshold)
        print(f"| {desired:g} | {result.threshold:g} | {on_others.answered} | " + " | ".join(_cells(on_others)) + " |")
    print()


def words(text: str) -> tuple[str, ...]:
    """Return the words that two questions share if they are certainly equal: all but courtesies, in their order."""
    return tuple(word for word in re.findall(r"\w+", text.casefold()) if word not in COURTESIES)


def _cells(of: AnsweredPairs) -> Iterator[str]:
    for part, whole in ((of.right, of.answered), (of.right, of.same)):
        low, high = interval(part, whole)
        yield f"{part / whole:.1%} ({low:.1%} to {high:.1%})" if whole else "-"


def tell(name: str, threshold: float, requests: Sequence[Request], embed: Embed) -> None:
    """Print the share of a workload that the caches answer."""
    embed([request.body["messages"][-1]["content"] for request in requests if request.answer])
    result = shares(requests, lambda text: embed([text])[0], threshold)
    tell_shares(name, f"{threshold:g}", shares(requests, None, threshold), result)


def tell_shares(name: str, threshold: str, alone: Shares, of: Shares) -> None:
    """Print a row: the share that the exact cache answers alone, and that of both caches."""
    wrong = f"{of.wrong / of.semantic:.1%}" if of.semantic else "-"
    cells = (f"{part / of.requests:.1%}" for part in (alone.exact, of.exact, of.semantic))
    print(f"| {name} | {threshold} | {of.requests} | " + " | ".join((*cells, wrong)) + " |")


if __name__ == "__main__":
    sys.exit(main())
