"""`promptgroup probe`: measure a replica's prefill rate and a tier's bandwidth by a few requests of its own.

Each prompt begins with random text, so that no request finds or extends what others have in cache. What the prompts
take of the replica's KV cache is bounded, and evicted as any other prompt is.
"""

import argparse
import contextlib
import secrets
import time
from collections.abc import Mapping

from promptgroup_cli.base.errors import ExitStatus, InputError, ReachError, RefusedError
from promptgroup_cli.forecast import measured
from promptgroup_cli.forecast.measured import LEAST_FOUND, ReplicaFigures, Timing
from promptgroup_cli.reach.files import read_bytes
from promptgroup_cli.render import probe_output
from promptgroup_operator.api.prompt_group import EngineType
from promptgroup_operator.base.errors import EngineError
from promptgroup_operator.engines.connections import EngineAccess
from promptgroup_operator.engines.dialects.dialect import Dialect
from promptgroup_operator.engines.dialects.registry import DIALECTS
from promptgroup_operator.engines.engine import EngineClient

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


def run(arguments: argparse.Namespace) -> int:
    """Run the command and return its exit status."""
    dialect = DIALECTS[EngineType(arguments.type)]
    # the lengths in turn: a machine that gets busier must not look like prompts that get longer
    prompts = {prompt(tokens): tokens for _ in range(arguments.repeat) for tokens in arguments.tokens}
    key = ""
    if arguments.key_file is not None:
        key = read_bytes(str(arguments.key_file), KEY_BYTES).decode("ascii", "replace").strip()
    with contextlib.closing(EngineClient(EngineAccess(key))) as client:
        try:
            found, busy = _measure(client, dialect, arguments, prompts)
        except EngineError as error:
            raise ReachError(f"{arguments.engine}: {error}") from None
    print({"table": probe_output.table, "json": probe_output.document}[arguments.output](found, busy))
    return ExitStatus.OK


def prompt(tokens: int) -> str:
    """Return a text of about so many tokens that nobody has sent before."""
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
            brought = sum(each.tiered for each in copies) / sum(each.prompt for each in copies)
            if brought >= LEAST_FOUND:
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
    """Empty a replica's GPU cache; what it computed last may still be on its way to the tier."""
    deadline = time.monotonic() + RESET_SECONDS
    while not client.reset(address, dialect):
        if time.monotonic() > deadline:
            raise RefusedError(
                "the replica did not empty its cache, since it works on requests of others: use one that serves nobody"
            )
        time.sleep(RESET_PAUSE)


def _ask(client: EngineClient, address: str, dialect: Dialect, model: str, prompts: Mapping[str, int]) -> list[Timing]:
    found = []
    for text, asked in prompts.items():
        answer = client.time(address, dialect, model, text)
        if answer is None:
            raise RefusedError(f"{address}: the engine does not say how many tokens it found in cache")
        found.append(Timing(*answer, asked))
    return found
