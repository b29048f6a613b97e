"""The answers of the stand-in: words drawn by the hash of the prompt, so that a retry gets the same answer.

Every word is one token, its trailing blank included. An answer that is part of the next turn's conversation
therefore has the tokens that were generated, and hits their blocks in the cache. A prompt of tokens that ends with the
beginning of a chat's answer is answered with the rest of that answer, as a model does at temperature 0.

Words of several scripts are longer than a token, which may end within a character.
"""

import enum
import struct
from collections.abc import Sequence
from dataclasses import dataclass

import xxhash

from promptgroup_local.engine.tokenizer import Special, tokenize

_LETTERS = (
    "theandforyoucanuseonetwonewoldwaydaysetgetputseerunkeymaplogbitrowsummaxmintopendallanyfew"
    "ownasksaytryactaimaddfitfixmixcutletmaydidhadhaswasarenotbutyesnowhowwhywho"
)
_WORDS = tuple(_LETTERS[start : start + 3] for start in range(0, len(_LETTERS), 3))
_SCRIPTS = ("été", "Ωmega", "日本語", "naïve", "👍🏽", "garçon", "€5", "мир", "a😀b", "ok")
"""Words of several scripts."""

_LONGEST_NATURAL = 512
"""Answers end by themselves after 1 to this many tokens, evenly spread: about the lengths that chat models write."""


class Finish(enum.StrEnum):
    """The reason why a request ended, in the words of the API and of `vllm:request_success_total`."""

    STOP = "stop"
    LENGTH = "length"
    ABORT = "abort"


@dataclass(frozen=True, slots=True)
class Answer:
    """The tokens that a prompt yields and why they end."""

    tokens: tuple[int, ...]
    finish: Finish


def answer(
    prompt: Sequence[int], max_tokens: int, *, ignore_eos: bool = False, scripts: bool = False, weights: str = ""
) -> Answer:
    """The one answer to a prompt, cut at `max_tokens`.

    Args:
        prompt: its tokens.
        max_tokens: most tokens of the answer.
        ignore_eos: whether the answer fills them all.
        scripts: whether it has words of several scripts.
        weights: what computes it beside the model: each adapter has answers of its own.
    """
    started = _begun(prompt)
    if started:
        requested, value = prompt[: len(prompt) - started], tuple(prompt[len(prompt) - started :])
        whole = _answer(requested, started + max_tokens, ignore_eos=ignore_eos, scripts=scripts, weights=weights)
        if whole.tokens[:started] == value and len(whole.tokens) > started:
            return Answer(whole.tokens[started:], whole.finish)
    return _answer(prompt, max_tokens, ignore_eos=ignore_eos, scripts=scripts, weights=weights)


def _begun(prompt: Sequence[int]) -> int:
    """Number of tokens behind the marker that a chat's answer follows; 0 if something else is last."""
    for started, token in enumerate(reversed(prompt)):
        if token >= min(Special):
            return started if token == Special.ASSISTANT else 0
    return 0


def _answer(prompt: Sequence[int], max_tokens: int, *, ignore_eos: bool, scripts: bool, weights: str) -> Answer:
    seed = xxhash.xxh3_64_intdigest(struct.pack(f"<{len(prompt)}Q", *prompt) + weights.encode())
    natural = 1 + seed % _LONGEST_NATURAL
    count = max_tokens if ignore_eos else min(natural, max_tokens)
    vocabulary = _SCRIPTS if scripts else _WORDS
    words = [
        vocabulary[xxhash.xxh3_64_intdigest(index.to_bytes(4), seed=seed) % len(vocabulary)] + " "
        for index in range(count)
    ]
    if count == natural and not ignore_eos:
        words[-1] = words[-1].rstrip() + "."
    tokens = tokenize("".join(words))
    ends = count == natural and not ignore_eos and len(tokens) <= max_tokens
    return Answer(tuple(tokens[:max_tokens]), Finish.STOP if ends else Finish.LENGTH)
