"""Stores the heaviest prefixes that requests share and no group declares, and the tokens that a group would save.

The model of a replica's cache gives the part of a new session's prompt that another request had before: this is a
shared prefix. It is stored here, and for each request that begins with it the tokens are counted that the engine had
cached, and those that it computed. A group computes them once per replica, when the replica is warmed.

As many prefixes are stored as by `unmatched`, and in the same way: a new one replaces the lightest. Prefixes are
identified by their marks alone (`prefixes.prompt_marks`); no text is stored.
"""

from array import array
from collections.abc import Mapping, Sequence

from promptgroup_contract.names import UNMATCHED
from promptgroup_router.policy.demand import Demand
from promptgroup_router.rings.ids import PrefixKey
from promptgroup_router.undeclared.decay import Decay
from promptgroup_router.undeclared.unmatched import BITS, BYTES, CAPACITY, Document, counted

SAME = 0.8
"""Share of a prefix's requests from which on the requests of a longer prefix count as nearly all of them."""
LEAST_SESSIONS = 3
"""Least sessions that share a prefix. A prefix of one session alone is its history, whose last part it may replace
once."""


class _Entry:
    """A prefix and its recent traffic; sums are weighted by `Decay.unit`."""

    __slots__ = (
        "error", "group", "hash", "instructions", "length", "missed", "model", "parent", "requests", "sessions",
    )  # fmt: skip

    def __init__(self, model: str, group: str, name: int, length: int, error: float, *, instructions: bool) -> None:
        self.model = model
        self.group = group
        """The group whose declared prompt precedes it, or UNMATCHED."""
        self.hash = name
        """Hash of the text alone: its mark without the value that `add` calls `within`."""
        self.length = length
        """Tokens beyond the group's declared prompt."""
        self.instructions = instructions
        """True if it ends within the tools and the system text."""
        self.error = error
        """Largest amount by which its weight may be too high, in tokens."""
        self.requests = 0.0
        self.missed = 0.0
        """Tokens of the prefix that engines computed anew."""
        self.sessions = 0
        """Bitmap of the sessions. Requests that begin alike may have the same session, so the next mark is added."""
        self.parent = 0
        """`hash` of the next shorter prefix that is stored; 0 for none."""


class SharedPrefixes:
    """The sketch; it takes at most 192 KiB."""

    def __init__(self, capacity: int = CAPACITY) -> None:
        self._capacity = capacity
        self._places: dict[PrefixKey, int] = {}
        self._keys: list[PrefixKey] = []
        self._entries: list[_Entry] = []
        self._weights = array("d")
        """Weight of each prefix: the tokens of its requests, cached or not."""
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
            model: the model that it names.
            group: its group's label, or UNMATCHED.
            demand: the request, with its marks.
            within: value that distinguishes its marks from the same text in other groups and caches.
            instructions: tokens of its tools and system text.
            known: number of its marks that were cached on its replica by another request before.
            cached: tokens of its prompt that were cached.
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
        """Return the answer of one router to `GET /unmatched`, with the most computed tokens first.

        Args:
            now: monotonic seconds.
            prefill_rates: model → measured prompt tokens that one of its replicas computes per second.
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
"""Fields that are summed over routers."""


def _computed(document: Document) -> float:
    return -float(document["computedTokensPerSecond"])


def merge(documents: Sequence[Document]) -> Document:
    """Merge the answers of several routers.

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
    """Return the prefixes that several sessions share, except those whose requests nearly all share a longer one.

    Each entry has its number of `sessions` instead of the bitmap.
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
