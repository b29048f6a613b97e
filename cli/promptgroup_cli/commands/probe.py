"""`promptgroup probe`: measure a replica's prefill rate and a tier's bandwidth by a few requests of its own.

Each prompt begins with random text, so that no request hits or extends the cached prompts of others. The prompts'
share of the replica's KV cache is bounded, and evicted like any other prompt.
"""

from __future__ import annotations

import argparse
import contextlib
import json
import math
import re
import secrets
import time
from collections.abc import Mapping
from pathlib import Path
from typing import TYPE_CHECKING

from promptgroup_cli.base.errors import ExitStatus, InputError, ReachError, RefusedError, exit_statuses
from promptgroup_cli.base.flags import ENGINES, add_output, whole_number
from promptgroup_cli.base.text import fact
from promptgroup_cli.forecast import measured
from promptgroup_cli.forecast.measured import LEAST_SHARE, Between, ReplicaFigures, Timing, bounds, is_sure, span
from promptgroup_cli.reach.files import read_bytes
from promptgroup_operator.base.errors import EngineError

if TYPE_CHECKING:
    from promptgroup_operator.engines.dialects.dialect import Dialect
    from promptgroup_operator.engines.engine import EngineClient

EXAMPLES = """\
  kubectl port-forward pod/support-9f2c61d0-abcde 8000 &
  promptgroup probe 127.0.0.1:8000 --model Qwen/Qwen3-8B -o json > measured.json
  promptgroup size --measured measured.json --model Qwen/Qwen3-8B --gpu H100-80GB ...
"""
FEWEST = 3
"""Fewest lengths: two always have a line through them, which does not show its error."""
MOST_REPEATS = 20
LONGEST = 131_072
MOST_OF_CACHE = 0.1
"""Share of a replica's KV cache that the prompts may take."""
KEY_BYTES = 1 << 16
RESET_SECONDS = 10.0
"""Longest wait for a cache to be emptied."""
RESET_PAUSE = 0.2
WORDS = (
    "time", "year", "people", "way", "day", "man", "thing", "woman", "life", "child", "world", "school", "state",
    "family", "student", "group", "country", "problem", "hand", "part", "place", "case", "week", "company",
    "system", "program", "question", "work", "government", "number", "night", "point", "home", "water", "room",
    "mother", "area", "money", "story", "fact", "month", "lot", "right", "study", "book", "eye", "job", "word",
    "business", "issue", "side", "kind", "head", "house", "service", "friend", "father", "power", "hour", "game",
    "line", "end", "member", "law",
)  # fmt: skip
"""Words of one token each in the vocabularies of today's models."""


def add(parser: argparse.ArgumentParser) -> None:
    """Add the command's description and flags."""
    parser.description = (
        "Measure the prefill rate of a replica, and how fast a KV tier copies to it, by a few requests with random "
        "prompts."
    )
    parser.epilog = exit_statuses(
        "the replica's prefill rate was measured",
        "its times do not grow with the length of prompts, or it does not say what it found in cache",
        EXAMPLES,
    )
    parser.add_argument("engine", type=_address, metavar="HOST:PORT", help="the replica")
    parser.add_argument("--model", required=True, metavar="NAME", help="model that it serves")
    parser.add_argument(
        "--type", choices=ENGINES, default=ENGINES[0], help="spec.engine.type of its group (default: %(default)s)"
    )
    tier = parser.add_mutually_exclusive_group()
    tier.add_argument(
        "--copy-to",
        type=_address,
        metavar="HOST:PORT",
        help="another replica of the group, which copies the prompts from the pool that both have",
    )
    tier.add_argument(
        "--reset",
        action="store_true",
        help="empty the replica's GPU cache in between, so that its own tier brings the prompts; of a replica in "
        "service, this evicts the cached prompts of all clients",
    )
    parser.add_argument(
        "--tokens",
        type=_lengths,
        default="512,1024,2048,4096",
        metavar="N,N",
        help="lengths of prompts, about (default: %(default)s)",
    )
    parser.add_argument(
        "--repeat",
        type=whole_number(1, MOST_REPEATS),
        default=3,
        metavar="N",
        help="requests of each length (default: %(default)s)",
    )
    parser.add_argument("--key-file", type=Path, metavar="FILE", help="file with the API key of the engine")
    add_output(parser)


def _address(text: str) -> str:
    address = text.removeprefix("http://").rstrip("/")
    if not re.fullmatch(r"([A-Za-z0-9.-]{1,253}|\[[0-9A-Fa-f:.]{2,45}\]):[1-9][0-9]{0,4}", address, re.ASCII):
        raise argparse.ArgumentTypeError(f"{text!r} is not an engine's address: write HOST:PORT")
    return address


def _lengths(text: str) -> tuple[int, ...]:
    parts = text.split(",")
    if not all(re.fullmatch(r"[1-9][0-9]{0,5}", part, re.ASCII) and int(part) <= LONGEST for part in parts):
        raise argparse.ArgumentTypeError(f"{text!r} are not lengths up to {LONGEST} tokens: write 512,1024,2048")
    if not FEWEST <= len(set(parts)) <= MOST_REPEATS:
        raise argparse.ArgumentTypeError(f"{text!r} has not from {FEWEST} to {MOST_REPEATS} different lengths")
    return tuple(sorted({int(part) for part in parts}))


def run(arguments: argparse.Namespace) -> int:
    """Run the command and return its exit status."""
    from promptgroup_operator.api.prompt_group import EngineType  # noqa: PLC0415 - `--help` needs no engine
    from promptgroup_operator.engines.connections import EngineAccess  # noqa: PLC0415
    from promptgroup_operator.engines.dialects.registry import DIALECTS  # noqa: PLC0415
    from promptgroup_operator.engines.engine import EngineClient  # noqa: PLC0415

    dialect = DIALECTS[EngineType(arguments.type)]
    # the lengths in turn: growing load on a machine must not correlate with growing prompts
    prompts = {prompt(tokens): tokens for _ in range(arguments.repeat) for tokens in arguments.tokens}
    key = ""
    if arguments.key_file is not None:
        key = read_bytes(str(arguments.key_file), KEY_BYTES).decode("ascii", "replace").strip()
    with contextlib.closing(EngineClient(EngineAccess(key))) as client:
        try:
            figures, busy = _measure(client, dialect, arguments, prompts)
        except EngineError as error:
            raise ReachError(f"{arguments.engine}: {error}") from None
    print({"table": table, "json": document}[arguments.output](figures, busy))
    return ExitStatus.OK


def prompt(tokens: int) -> str:
    """Return a text of about so many tokens that no client has sent before."""
    return f"{secrets.token_hex(8)} " + " ".join(secrets.SystemRandom().choices(WORDS, k=tokens))


def _measure(
    client: EngineClient, dialect: Dialect, arguments: argparse.Namespace, prompts: Mapping[str, int]
) -> tuple[ReplicaFigures, float]:
    before = client.read(arguments.engine, dialect)
    tokens = sum(arguments.tokens) * arguments.repeat
    if before.kv_tokens and tokens > MOST_OF_CACHE * before.kv_tokens:
        raise InputError(
            f"{len(prompts)} prompts of {tokens:,} tokens would take more than {MOST_OF_CACHE:.0%} of the "
            f"replica's {before.kv_tokens:,} tokens of KV cache, and evict others: use a smaller --tokens or --repeat"
        )
    computed = _ask(client, arguments.engine, dialect, arguments.model, prompts)
    computing = measured.prefill(computed)
    if computing is None:
        raise RefusedError(
            "the times of the requests do not grow with their tokens: the replica is busy with others, or too quick "
            "for prompts of this length; use a larger --tokens"
        )
    tier = None
    target = arguments.copy_to or arguments.engine
    if arguments.copy_to is not None or arguments.reset:
        if arguments.reset:
            _empty(client, target, dialect)
        copies = _ask(client, target, dialect, arguments.model, prompts)
        tier = measured.copying(copies, computing)
        if tier is None:
            brought = sum(copy.tiered for copy in copies) / sum(copy.prompt for copy in copies)
            if brought >= LEAST_SHARE:
                one = measured.at_least(copies)
                raise RefusedError(
                    f"the times of the copies do not grow with their tokens: {one.tiered:,} of them came within "
                    f"{one.seconds * 1000:,.1f} ms, with all else that a request takes, so that the KV tier copies "
                    f"at least {one.tiered / one.seconds:,.0f} tokens/s; use a larger --tokens to know more"
                )
            raise RefusedError(f"the KV tier brought {brought:.0%} of the prompts, too few to measure it")
    after = client.read(arguments.engine, dialect)
    sure = measured.between(computing.least, computing.most)
    kv_tokens = after.kv_tokens or before.kv_tokens
    return ReplicaFigures(1 / computing.token, computing.start, computing.error, kv_tokens, sure, tier), before.busy


def _empty(client: EngineClient, address: str, dialect: Dialect) -> None:
    """Reset a replica's GPU cache; the KV that it computed last may still be on its way to the tier."""
    deadline = time.monotonic() + RESET_SECONDS
    while not client.reset(address, dialect):
        if time.monotonic() > deadline:
            raise RefusedError(
                "the replica did not empty its cache, since it works on requests of others: use one that serves nobody"
            )
        time.sleep(RESET_PAUSE)


def _ask(client: EngineClient, address: str, dialect: Dialect, model: str, prompts: Mapping[str, int]) -> list[Timing]:
    result = []
    for text, requested in prompts.items():
        answer = client.time(address, dialect, model, text)
        if answer is None:
            raise RefusedError(f"{address}: the engine does not say how many tokens it found in cache")
        result.append(Timing(*answer, requested))
    return result


def table(figures: ReplicaFigures, busy: float) -> str:
    """Return the figures for people.

    Args:
        figures: the figures.
        busy: requests that the replica worked on before.
    """
    lines = [
        *fact(
            "Prefill", f"{_rate(figures.rate, figures.between)}, after {figures.start * 1000:,.1f} ms of each request"
        ),
        *fact("KV cache", f"{figures.kv_tokens:,} tokens" if figures.kv_tokens else "not told by the engine"),
    ]
    if figures.tier is not None:
        pays = (
            "never pays"
            if math.isinf(figures.tier.break_even)
            else f"pays from {figures.tier.break_even:,.0f} tokens on"
        )
        latency = f"{figures.tier.latency * 1000:,.1f} ms before the first"
        lines += fact("KV tier", f"{_rate(figures.tier.rate, figures.tier.between)}, {latency}; a copy {pays}")
    fits = [
        (figures.error, figures.between),
        *([(figures.tier.error, figures.tier.between)] if figures.tier is not None else []),
    ]
    far = max(error for error, _ in fits)
    doubt = "" if all(is_sure(*fit) for fit in fits) else "; do not rely on it: use longer --tokens, more --repeat"
    near = f"the fastest request of each length is within {far:.0%} of the line"
    lines += fact("Fit", f"{near}; the rates in brackets leave one length out{doubt}")
    if busy:
        lines += fact("Mind", f"{busy:.0f} requests were running: these are the figures of a busy replica")
    return "\n".join(lines)


def _rate(rate: float, between: Between) -> str:
    return f"{rate:,.0f} tokens/s ({span(between)})"


def document(figures: ReplicaFigures, busy: float) -> str:
    """Return the figures for programs; `promptgroup size --measured` reads them."""
    tier = figures.tier
    result = {
        "prefillTokensPerSecond": round(figures.rate, 1),
        "prefillBetween": bounds(figures.between),
        "startSeconds": round(figures.start, 6),
        "kvTokens": figures.kv_tokens,
        "error": round(figures.error, 3),
        "requestsRunning": busy,
        "tier": None
        if tier is None
        else {
            "tokensPerSecond": round(tier.rate, 1),
            "between": bounds(tier.between),
            "latencySeconds": round(tier.latency, 6),
            "error": round(tier.error, 3),
            "breakEvenTokens": None if math.isinf(tier.break_even) else round(tier.break_even),
        },
    }
    return json.dumps(result, indent=2)
