"""Keeps the heaviest prefixes that requests share and no group declares, and the tokens that a group would save.

The index of prefixes knows how much of a new session's prompt another request had before: that is a prefix that is
shared. It is kept here, and each request that begins with it counts: how many tokens of it the engine found in its
cache, and how many it computed. A group computes them once on each replica, when it is warmed.

As many prefixes are kept as by `unmatched`, in the same way: a new one takes the place of the lightest. Prefixes are
known by their marks alone (`prefixes.prompt_marks`), no text is kept.
"""

from array import array
from collections.abc import Mapping, Sequence

from promptgroup_router.policy.demand import Demand
from promptgroup_router.rings.ids import PrefixKey
from promptgroup_router.undeclared.decay import Decay
from promptgroup_router.undeclared.unmatched import BITS, BYTES, CAPACITY, UNMATCHED, Document, counted

SAME = 0.8
"""Share of a prefix's requests from which on those of a longer one count as all of them."""
LEAST_SESSIONS = 3
"""Sessions that share a prefix. What one has to itself is its history, of which it may leave the last part once."""


class _Entry:
    """A prefix and its traffic lately; sums are weighed by `Decay.unit`."""

    __slots__ = (
        "error", "group", "hash", "instructions", "length", "missed", "model", "parent", "requests", "sessions",
    )  # fmt: skip

    def __init__(self, model: str, group: str, name: int, length: int, error: float, *, instructions: bool) -> None:
        self.model = model
        self.group = group
        """The group whose prompt is in front of it, or UNMATCHED."""
        self.hash = name
        """Its mark, as it is cut."""
        self.length = length
        """Tokens beyond what the group declares."""
        self.instructions = instructions
        """True if it ends within the tools and the system text."""
        self.error = error
        """Largest amount by which its weight may be too high, in tokens."""
        self.requests = 0.0
        self.missed = 0.0
        """Tokens of it that engines computed."""
        self.sessions = 0
        """Bitmap of the sessions. Texts that begin alike have one session, so they are told apart by how they go on."""
        self.parent = 0
        """The next shorter prefix that is kept, as it is cut; 0 for none."""


class SharedPrefixes:
    """The sketch; it has at most 192 KiB."""

    def __init__(self, capacity: int = CAPACITY) -> None:
        self._capacity = capacity
        self._places: dict[PrefixKey, int] = {}
        self._keys: list[PrefixKey] = []
        self._entries: list[_Entry] = []
        self._weights = array("d")
        """Tokens of the requests of each, whether they were cached or not."""
        self._decay = Decay()

    def add(
        self,
        model: str,
        group: str,
        demand: Demand,
        *,
        within: PrefixKey,
        instructions: int,
        known: int,
        cached: float,
        now: float,
    ) -> None:
        """Count a request that was served.

        Args:
            model: that it names.
            group: its group's label, or UNMATCHED.
            demand: the request, with its marks.
            within: what tells its marks from the same text in other groups and caches.
            instructions: tokens of its tools and system text.
            known: of its marks, how many another request had before on its replica.
            cached: tokens of it that were found in cache.
            now: monotonic seconds.
        """
        marks, lengths, places = demand.marks, demand.lengths, self._places
        self._age(now)
        unit = self._decay.unit
        declared = demand.tier1 if group != UNMATCHED else 0
        if known and not demand.history and marks[known - 1] not in places:
            mark, length = marks[known - 1], lengths[known - 1]
            name = int(mark) ^ int(within)
            self._keep(mark, model, group, name, length - declared, instructions=length <= instructions)
        parent = 0
        for index in range(len(marks)):
            place = places.get(marks[index])
            if place is None:
                continue
            entry = self._entries[place]
            length = lengths[index]
            entry.length = length - declared
            entry.requests += unit
            entry.missed += max(0.0, length - max(cached, declared)) * unit
            if not demand.history:
                follows = marks[index + 1] if index + 1 < len(marks) else 0
                entry.sessions |= 1 << (demand.session + follows) % BITS
            entry.parent, parent = parent, entry.hash
            self._weights[place] += max(1, length - declared) * unit

    def _keep(self, mark: PrefixKey, model: str, group: str, name: int, length: int, *, instructions: bool) -> None:
        full = len(self._keys) >= self._capacity
        error = min(self._weights) if full else 0.0
        entry = _Entry(model, group, name, length, error, instructions=instructions)
        if full:
            place = self._weights.index(error)
            del self._places[self._keys[place]]
            self._keys[place], self._entries[place] = mark, entry
        else:
            place = len(self._keys)
            self._keys.append(mark)
            self._entries.append(entry)
            self._weights.append(0.0)
        self._places[mark] = place

    def _age(self, now: float) -> None:
        divisor = self._decay.advance(now)
        if divisor > 1.0:
            for place, entry in enumerate(self._entries):
                self._weights[place] /= divisor
                entry.error /= divisor
                entry.requests /= divisor
                entry.missed /= divisor

    def document(self, now: float, prefill_rates: Mapping[str, int] | None = None) -> Document:
        """Return what one router tells of them at `GET /unmatched`, those first of which most was computed.

        Args:
            now: monotonic seconds.
            prefill_rates: model → prompt tokens that a replica of it computes a second, where that was measured.
        """
        self._age(now)
        rates, unit = prefill_rates or {}, self._decay.unit
        weigh = unit * max(1.0, self._decay.seconds(now))
        listed = [
            {
                "model": entry.model,
                "group": entry.group,
                "hash": f"{entry.hash:016x}",
                "within": f"{entry.parent:016x}",
                "instructions": entry.instructions,
                "prefixTokens": entry.length,
                "requests": entry.requests / unit,
                "requestsPerSecond": entry.requests / weigh,
                "tokensPerSecond": (self._weights[place] - entry.error) / weigh,
                "computedTokensPerSecond": entry.missed / weigh,
                "bitmap": entry.sessions.to_bytes(BYTES, "little").hex(),
                **({"prefillTokensPerSecond": rates[entry.model]} if entry.model in rates else {}),
            }
            for place, entry in enumerate(self._entries)
        ]
        return {"shared": sorted(listed, key=_computed)}


# --- The answer to GET /unmatched ----------------------------------------------------------------------------------

ADDED = ("requests", "requestsPerSecond", "tokensPerSecond", "computedTokensPerSecond")
"""Fields of which each router has its own part."""


def _computed(document: Document) -> float:
    return -float(document["computedTokensPerSecond"])


def merge(documents: Sequence[Document]) -> Document:
    """Return what several routers tell together.

    Raises:
        KeyError, TypeError, ValueError: a document has another form.
    """
    merged: dict[tuple[str, str, str], Document] = {}
    for entry in (entry for document in documents for entry in document.get("shared", ())):
        key = str(entry["model"]), str(entry["group"]), str(entry["hash"])
        known = merged.get(key)
        if known is None:
            merged[key] = dict(entry)
            continue
        sessions = int(known["bitmap"], 16) | int(entry["bitmap"], 16)
        merged[key] = (
            known
            | entry
            | {name: known[name] + entry[name] for name in ADDED}
            | {"bitmap": f"{sessions:0{2 * BYTES}x}"}
        )
    return {"shared": sorted(merged.values(), key=_computed)[:CAPACITY]}


def worth_a_group(listed: Sequence[Document]) -> list[Document]:
    """Return the prefixes that several sessions share, without those of which nearly all requests share a longer one.

    Each has its number of `sessions` in place of the bitmap.
    """
    shared = [entry | {"sessions": counted(bytes.fromhex(entry["bitmap"]))} for entry in listed]
    shared = [entry for entry in shared if entry["sessions"] >= LEAST_SESSIONS]
    longer: dict[tuple[str, str, str], float] = {}
    for entry in shared:
        key = entry["model"], entry["group"], entry["within"]
        longer[key] = max(longer.get(key, 0.0), entry["requests"])
    return [
        {name: value for name, value in entry.items() if name not in ("bitmap", "within")}
        for entry in shared
        if longer.get((entry["model"], entry["group"], entry["hash"]), 0.0) < SAME * entry["requests"]
    ]
