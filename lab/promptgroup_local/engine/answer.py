"""The answers of the stand-in: words drawn by the hash of the prompt, so that a retry gets the same answer.

Every word is one token, its trailing blank included. An answer that comes back inside the next turn's conversation
therefore has the tokens that were generated, and finds their blocks in the cache.
"""

import enum
import struct
from collections.abc import Sequence
from dataclasses import dataclass

import xxhash

from promptgroup_local.engine.tokenizer import tokenize

_LETTERS = (
    "theandforyoucanuseonetwonewoldwaydaysetgetputseerunkeymaplogbitrowsummaxmintopendallanyfew"
    "ownasksaytryactaimaddfitfixmixcutletmaydidhadhaswasarenotbutyesnowhowwhywho"
)
_WORDS = tuple(_LETTERS[start : start + 3] for start in range(0, len(_LETTERS), 3))

_LONGEST_NATURAL = 512
"""Answers end by themselves after 1 to this many tokens, evenly spread: about what chat models write."""


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


def answer(prompt: Sequence[int], max_tokens: int, *, ignore_eos: bool = False) -> Answer:
    """The one answer to a prompt, cut at `max_tokens`; `ignore_eos` fills them all."""
    seed = xxhash.xxh3_64_intdigest(struct.pack(f"<{len(prompt)}Q", *prompt))
    natural = 1 + seed % _LONGEST_NATURAL
    count = max_tokens if ignore_eos else min(natural, max_tokens)
    finish = Finish.STOP if count == natural and not ignore_eos else Finish.LENGTH
    words = [
        _WORDS[xxhash.xxh3_64_intdigest(index.to_bytes(4), seed=seed) % len(_WORDS)] + " " for index in range(count)
    ]
    if finish is Finish.STOP:
        words[-1] = words[-1].rstrip() + "."
    return Answer(tuple(tokenize("".join(words))), finish)
