"""Stores the heaviest prefixes that no group declares: the prompts for which a group would save most.

Weighted space-saving (Metwally, Agrawal, El Abbadi, ICDT 2005; Cormode and Hadjieleftheriou, PVLDB 2008): in a full
sketch a new entry replaces the lightest one and inherits its weight as the possible error. A prefix with more than
1/CAPACITY of all weight is always in the sketch. The weight of a request is the tokens of its prefix, which a group
would keep warm. Weights decay exponentially (`decay`), so that the sketch describes recent traffic (Cormode, Korn,
Tirthapura, ICDE 2008).

Volatile text at the top of a prompt, which differs between requests (`leading`), is recorded by rule and position once
two requests differ in it. The declared prompt that the latest request nearly matched is recorded, too.

The numbers of sessions and texts per prefix are estimated by linear counting (Whang, Vander-Zanden, Taylor, TODS 1990).
Bitmaps are merged by a bitwise or, so that the figures of several routers can be combined. Text of a prompt is stored
only if a limit of bytes per prefix is set for it (`sample_bytes`).
"""

import functools
import math
from array import array
from collections.abc import Iterable, Mapping, Sequence
from collections.abc import Set as AbstractSet
from dataclasses import dataclass
from typing import Any, NamedTuple

from promptgroup_router.prefixes.leading import VolatileText
from promptgroup_router.prefixes.volatile import TOP_TOKENS
from promptgroup_router.rings.claims import common_length
from promptgroup_router.rings.ids import PrefixKey
from promptgroup_router.undeclared.decay import Decay

CAPACITY = 256
"""Most prefixes stored. The weight of a prefix is too high by at most a 256th of all weight."""
LISTED = 20
"""Number of prefixes that are shown to users."""
BITS = 256
"""Bits of a bitmap, which counts up to about a thousand with an error of a tenth."""
BYTES = BITS // 8
_NONE = -1
"""Stands for no group, or no rule."""
_MOST_AT = (1 << 32) - 1


@dataclass(frozen=True, slots=True)
class PrefixSample:
    """The text that all requests with a prefix begin with, as far as it is stored."""

    system: str
    tools: str
    """The tools in canonical form; empty if they differ between requests, or are too long."""
    whole: bool
    """False if the text is cut at the limit, so that the shared text may be longer."""


def sampled(system: str, tools: str, limit: int) -> PrefixSample:
    """Return the sample of one request, which has at most `limit` bytes."""
    encoded = system[:limit].encode()
    kept = encoded[:limit].decode(errors="ignore")  # without a character that is cut
    room = limit - len(encoded)
    fits = len(tools) <= room and len(tools.encode()) <= room
    return PrefixSample(kept, tools if fits else "", len(kept) == len(system))


def shared(one: PrefixSample, other: PrefixSample) -> PrefixSample:
    """Return the common part of two samples."""
    system = one.system[: common_length(one.system, other.system)]
    cut = not (one.whole and other.whole) and len(system) == min(len(one.system), len(other.system))
    return PrefixSample(system, one.tools if one.tools == other.tools else "", not cut)


class Place(NamedTuple):
    """A position in a text."""

    name: str
    """The group whose prompt the text is, as `namespace/group`, or the rule that the text there matches."""
    at: int
    """Bytes in front of it."""


@dataclass(frozen=True, slots=True)
class UnmatchedPrefix:
    """A prefix of requests that match no group, and its recent traffic."""

    model: str
    hash: int
    length: int
    """Bytes of the system text of the latest request."""
    tokens: float
    """Prefix tokens of its requests, decayed with time."""
    error: float
    """Largest amount by which `tokens` may be too high."""
    requests: float
    """Requests since it was added, decayed in the same way."""
    sessions: bytes
    """Bitmap of the sessions."""
    texts: bytes
    """Bitmap of the whole system texts and tools."""
    sample: PrefixSample | None = None
    near: Place | None = None
    """Position at which the latest request departs from a declared prompt that it nearly matches."""
    varies: Place | None = None
    """The first volatile text at the top that has differed between two requests."""

    @property
    def prefix_tokens(self) -> int:
        """Mean tokens of the prefix per request."""
        return round((self.tokens - self.error) / self.requests) if self.requests else 0


class UnmatchedPrefixes:
    """The sketch. It takes at most 64 KiB: its figures are stored in arrays, without an object per entry.

    Samples need further memory: there are at most `capacity` of them, each with at most `sample_bytes`.
    """

    def __init__(self, capacity: int = CAPACITY, sample_bytes: int = 0) -> None:
        self._capacity = capacity
        self.sample_bytes = sample_bytes
        """Most bytes of a prefix's text that are stored; 0 to store none."""
        self._samples: dict[int, PrefixSample] = {}
        """Index of an entry → sample."""
        self._models: list[str] = []
        """Models, by number; each model is listed once."""
        self._places: dict[tuple[int, PrefixKey], int] = {}
        """Number of the model and hash → index of the entry."""
        self._keys: list[tuple[int, PrefixKey]] = []
        """Number of the model and hash, by index."""
        self._tokens, self._errors, self._requests = array("d"), array("d"), array("d")
        self._lengths = array("q")
        self._sessions, self._texts = bytearray(), bytearray()
        self._groups: list[str] = []
        """Groups that are nearly matched, by number."""
        self._near, self._near_at = array("h"), array("I")
        """Number of the group, or _NONE; bytes in front of the difference."""
        self._rules: list[str] = []
        """Rules of volatile text at the top, by number."""
        self._varies, self._varies_at = array("b"), array("H")
        """Number of the rule, or _NONE; bytes in front of the text that varies."""
        self._values = array("H")
        """Hashes of the volatile texts at the top of the latest request, TOP_TOKENS per entry."""
        self._decay = Decay()

    def add(
        self,
        model: str,
        prefix: PrefixKey,
        length: int,
        *,
        tokens: float,
        session: int,
        text: int,
        now: float,
        sample: PrefixSample | None = None,
        near: tuple[str, int] | None = None,
        volatile: Sequence[VolatileText] = (),
    ) -> None:
        """Count a request.

        Args:
            model: the model that the request names.
            prefix: hash of the beginning of its system text.
            length: bytes of its system text.
            tokens: estimated tokens of its prefix.
            session: hash of its session.
            text: hash of its whole system text and tools.
            now: monotonic seconds.
            sample: its text, if samples are stored.
            near: the group that it nearly matches, and the bytes in front of the difference.
            volatile: volatile text at its top, which the hash leaves out.
        """
        self._age(now)
        place = self._place(model, prefix)
        self._note_near(place, near)
        if volatile:
            self._note_volatile(place, volatile)
        if sample is not None:
            prefix_sample = self._samples.get(place)
            self._samples[place] = sample if prefix_sample is None else shared(prefix_sample, sample)
        self._tokens[place] += max(1.0, tokens) * self._decay.unit
        self._requests[place] += self._decay.unit
        self._lengths[place] = length
        _set(self._sessions, place, session)
        _set(self._texts, place, text)

    def entries(self, now: float) -> list[UnmatchedPrefix]:
        """Return all prefixes, the heaviest first."""
        self._age(now)
        unit = self._decay.unit
        unmatched_prefixes = [
            UnmatchedPrefix(
                self._models[model],
                prefix,
                self._lengths[place],
                self._tokens[place] / unit,
                self._errors[place] / unit,
                self._requests[place] / unit,
                bytes(self._sessions[place * BYTES : (place + 1) * BYTES]),
                bytes(self._texts[place * BYTES : (place + 1) * BYTES]),
                self._samples.get(place),
                self._named_place(self._groups, self._near[place], self._near_at[place]),
                self._named_place(self._rules, self._varies[place], self._varies_at[place]),
            )
            for (model, prefix), place in self._places.items()
        ]
        return sorted(unmatched_prefixes, key=lambda item: -item.tokens)

    def seconds(self, now: float) -> float:
        """Return the seconds that the weights represent: the weight of a steady rate is the rate times this value."""
        return self._decay.seconds(now)

    def _note_near(self, place: int, near: tuple[str, int] | None) -> None:
        if near is None:
            self._near[place] = _NONE
            return
        group, at = near
        if self._near[place] == _NONE or self._groups[self._near[place]] != group:
            self._near[place] = _NONE
            self._near[place] = _number(self._groups, group, set(self._near))
        self._near_at[place] = min(at, _MOST_AT)

    def _note_volatile(self, place: int, volatile: Sequence[VolatileText]) -> None:
        first = self._requests[place] == 0
        for index, volatile_text in enumerate(volatile[:TOP_TOKENS]):
            value, last = volatile_text.value % (1 << 16), self._values[place * TOP_TOKENS + index]
            self._values[place * TOP_TOKENS + index] = value
            earlier = self._varies[place] == _NONE or volatile_text.at < self._varies_at[place]
            if not first and value != last and earlier:
                self._varies[place] = _number(self._rules, volatile_text.rule, set(self._varies))
                self._varies_at[place] = volatile_text.at

    @staticmethod
    def _named_place(names: list[str], number: int, at: int) -> Place | None:
        return Place(names[number], at) if number != _NONE else None

    def _place(self, model: str, prefix: PrefixKey) -> int:
        if model in self._models:
            number = self._models.index(model)
        else:
            number = _number(self._models, model, {number for number, _ in self._places})
        place = self._places.get((number, prefix))
        if place is not None:
            return place
        if len(self._places) < self._capacity:
            place = len(self._places)
            self._keys.append((number, prefix))
            for column in (self._tokens, self._errors, self._requests):
                column.append(0.0)
            self._lengths.append(0)
            self._sessions += bytes(BYTES)
            self._texts += bytes(BYTES)
            self._near.append(_NONE)
            self._near_at.append(0)
            self._varies.append(_NONE)
            self._varies_at.append(0)
            self._values.extend([0] * TOP_TOKENS)
        else:
            place = self._tokens.index(min(self._tokens))
            del self._places[self._keys[place]]
            self._samples.pop(place, None)
            self._keys[place] = number, prefix
            self._errors[place] = self._tokens[place]
            self._requests[place] = 0.0
            self._varies[place] = _NONE
            self._sessions[place * BYTES : (place + 1) * BYTES] = bytes(BYTES)
            self._texts[place * BYTES : (place + 1) * BYTES] = bytes(BYTES)
        self._places[self._keys[place]] = place
        return place

    def _age(self, now: float) -> None:
        divisor = self._decay.advance(now)
        if divisor > 1.0:
            for column in (self._tokens, self._errors, self._requests):
                for place, value in enumerate(column):
                    column[place] = value / divisor


def _number(names: list[str], name: str, kept: AbstractSet[int]) -> int:
    """Return the number of a name; a new name gets a number that is not in use (`kept`)."""
    if name in names:
        return names.index(name)
    free = next((number for number in range(len(names)) if number not in kept), None)
    if free is None:
        names.append(name)
        return len(names) - 1
    names[free] = name
    return free


def _set(bitmaps: bytearray, place: int, hash_: int) -> None:
    bit = hash_ % BITS
    bitmaps[place * BYTES + bit // 8] |= 1 << bit % 8


def counted(bitmap: bytes) -> int:
    """Return the estimated number of different hashes in a bitmap; at most BITS ln BITS, if all bits are set."""
    empty = BITS - int.from_bytes(bitmap, "little").bit_count()
    return round(BITS * math.log(BITS / max(1, empty)))


# --- The answer to GET /unmatched ----------------------------------------------------------------------------------

Document = dict[str, Any]


def document(sketch: UnmatchedPrefixes, now: float, prefill_rates: Mapping[str, int] | None = None) -> Document:
    """Return the sketch of one router as the answer to `GET /unmatched`.

    Args:
        sketch: the sketch.
        now: monotonic seconds.
        prefill_rates: model → measured prompt tokens that one of its replicas computes per second.
    """
    rates = prefill_rates or {}
    seconds = max(1.0, sketch.seconds(now))
    return {
        "unmatched": [
            {
                "model": entry.model,
                "hash": f"{entry.hash:016x}",
                "systemBytes": entry.length,
                "prefixTokens": entry.prefix_tokens,
                "requests": round(entry.requests),
                "requestsPerSecond": entry.requests / seconds,
                "tokensPerSecond": entry.tokens / seconds,
                "tokensPerSecondTooHighBy": entry.error / seconds,
                "sessions": counted(entry.sessions),
                "texts": counted(entry.texts),
                "bitmaps": (entry.sessions + entry.texts).hex(),
                **({"near": {"group": entry.near.name, "atByte": entry.near.at}} if entry.near is not None else {}),
                **(
                    {"varies": {"rule": entry.varies.name, "atByte": entry.varies.at}}
                    if entry.varies is not None
                    else {}
                ),
                **({"prefillTokensPerSecond": rates[entry.model]} if entry.model in rates else {}),
                **({"sample": _encode(entry.sample)} if entry.sample is not None else {}),
            }
            for entry in sketch.entries(now)
        ]
    }


def _encode(sample: PrefixSample) -> Document:
    return {"system": sample.system, "tools": sample.tools, "whole": sample.whole}


def decode_sample(result: Document) -> PrefixSample:
    """Return the sample of an entry of an answer.

    Raises:
        KeyError, TypeError, ValueError: the sample has another form.
    """
    system, tools, whole = result["system"], result["tools"], result["whole"]
    if not (isinstance(system, str) and isinstance(tools, str) and isinstance(whole, bool)):
        raise TypeError("a sample is not made of texts")
    return PrefixSample(system, tools, whole)


ADDED = ("requests", "requestsPerSecond", "tokensPerSecond", "tokensPerSecondTooHighBy")
"""Fields that are summed over routers."""


def merge(documents: Sequence[Document]) -> Document:
    """Merge the answers of several routers: the heaviest prefixes first, as many as one sketch stores.

    Raises:
        KeyError, TypeError, ValueError: a document has another form.
    """
    result: dict[tuple[str, str], Document] = {}
    for item in (entry for one in documents for entry in one["unmatched"]):
        key = str(item["model"]), str(item["hash"])
        last = result.get(key)
        result[key] = dict(item) if last is None else _together(last, item)
    heaviest = sorted(result.values(), key=lambda item: -float(item["tokensPerSecond"]))
    return {"unmatched": heaviest[:CAPACITY]}


def _together(one: Document, other: Document) -> Document:
    bitmaps = _either(bytes.fromhex(one["bitmaps"]), bytes.fromhex(other["bitmaps"]))
    heavier = max(one, other, key=lambda item: float(item["tokensPerSecond"]))
    samples = [decode_sample(item["sample"]) for item in (one, other) if "sample" in item]
    sample = {"sample": _encode(functools.reduce(shared, samples))} if samples else {}
    return (
        one
        | other
        | heavier
        | sample
        | {name: one[name] + other[name] for name in ADDED}
        | {"sessions": counted(bitmaps[:BYTES]), "texts": counted(bitmaps[BYTES:]), "bitmaps": bitmaps.hex()}
    )


def _either(one: Iterable[int], other: Iterable[int]) -> bytes:
    return bytes(a | b for a, b in zip(one, other, strict=True))
