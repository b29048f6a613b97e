"""Asks routers about prompts that no group declares, and finds the user's own requests that begin with them."""

from collections.abc import Container, Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, NamedTuple

from promptgroup_cli.base import bounded_json
from promptgroup_cli.base.errors import InputError
from promptgroup_cli.lint.volatile import BY_ID
from promptgroup_cli.reach import inputs
from promptgroup_cli.reach.connect import Router
from promptgroup_cli.reach.each_router import ask_each, heard
from promptgroup_cli.reach.files import shown
from promptgroup_cli.reach.inputs import InputFormat, InputText
from promptgroup_router.apis.request import SYSTEM_ROLES, ParsedRequest, text_of
from promptgroup_router.base.core_settings import MAX_SAMPLE_BYTES
from promptgroup_router.prefixes.prompt_marks import marks_of
from promptgroup_router.rings.claims import common_length
from promptgroup_router.undeclared import shared_prefixes
from promptgroup_router.undeclared.leading import leading_of
from promptgroup_router.undeclared.unmatched import BYTES, CAPACITY, Document, decode_sample, merge
from promptgroup_router.undeclared.volatile import on_top

MOST_NUMBER = 1e15
"""A figure above it is none."""
MOST_NAME = 320
"""Characters of a group's label or a rule's id at most."""
MOST_SAMPLES = 10_000
"""Requests of a sample that are compared; more say nothing new of what they share."""


@dataclass(slots=True)
class SamplePrompt:
    """The text that requests of a sample with one beginning have in common."""

    system: str
    """The text that all of them begin with."""
    tools: str
    """Their tools in canonical form."""
    requests: int = 1
    texts: set[str] = field(default_factory=set)
    """Whole system texts, as far as they differ."""
    behind: str = ""
    """The text that they share behind volatile text on top; empty without such text."""
    moved: bool = False
    """True if that is the text here: what stands on top differs."""
    in_messages: bool = False
    """True if its end is text of messages."""

    @property
    def varies(self) -> bool:
        """True if something behind the common text changes."""
        return len(self.texts) > 1


class Discovered(NamedTuple):
    """The prompts that no group declares, as routers saw them."""

    shared: list[Document]
    """Prefixes that sessions share; first those of which a group would save most."""
    unmatched: list[Document]
    """Beginnings of requests without a group, the heaviest first."""


def ask_all(routers: Mapping[str, Router]) -> tuple[Discovered, tuple[str, ...]]:
    """Return what all routers saw, and the names of routers that did not answer.

    Raises:
        ReachError: none answered.
    """
    told, failed = ask_each(routers, ask_one)
    documents = list(heard(told, failed).values())
    shared = shared_prefixes.worth_a_group(shared_prefixes.merge(documents)["shared"])
    return Discovered(shared, together(documents)), tuple(failed)


def ask_one(ask: Router) -> Document:
    """Return what one router tells, checked; raises as readers of `ask_each` do."""
    told = bounded_json.parse(ask("/unmatched", None))
    return {
        "unmatched": [_entry(entry) for entry in told["unmatched"][:CAPACITY]],
        "shared": [_shared(entry) for entry in told.get("shared", ())[:CAPACITY]],  # older routers tell of none
    }


def together(told: Sequence[Document]) -> list[Document]:
    """Return the prefixes that several routers tell of, the heaviest first."""
    listed: list[Document] = merge(told)["unmatched"]
    return listed


_NUMBERS = (
    "systemBytes", "prefixTokens", "requests", "requestsPerSecond", "tokensPerSecond", "tokensPerSecondTooHighBy",
    "sessions", "texts",
)  # fmt: skip


def _entry(told: Mapping[str, Any]) -> Document:
    """Return an entry of a router's answer, checked."""
    numbers = {name: float(told[name]) for name in _NUMBERS}
    bitmaps = bytes.fromhex(told["bitmaps"])
    if len(bitmaps) != 2 * BYTES or not all(0 <= each < MOST_NUMBER for each in numbers.values()):
        raise ValueError("a figure is out of range")
    entry: Document = numbers | {"model": str(told["model"]), "hash": str(told["hash"]), "bitmaps": bitmaps.hex()}
    entry |= {name: _place(told[name], key) for name, key in (("near", "group"), ("varies", "rule")) if name in told}
    if "prefillTokensPerSecond" in told:
        entry["prefillTokensPerSecond"] = _figure(told["prefillTokensPerSecond"])
    if "sample" in told:
        sample = decode_sample(told["sample"])
        if len(sample.system) + len(sample.tools) > MAX_SAMPLE_BYTES:
            raise ValueError("a sample is too long")
        if sample.tools:
            bounded_json.parse(sample.tools.encode())  # as the PromptGroup that is written has them
        entry["sample"] = told["sample"]
    return entry


def _shared(told: Mapping[str, Any]) -> Document:
    """Return an entry of the shared prefixes, checked."""
    bitmap = bytes.fromhex(told["bitmap"])
    if len(bitmap) != BYTES:
        raise ValueError("a figure is out of range")
    entry: Document = {name: _figure(told[name]) for name in ("prefixTokens", *shared_prefixes.ADDED)}
    for name in ("model", "group", "hash", "within"):
        entry[name] = str(told[name])
        if name != "model" and not (entry[name].isprintable() and len(entry[name]) <= MOST_NAME):
            raise ValueError("a name is none")
    if "prefillTokensPerSecond" in told:
        entry["prefillTokensPerSecond"] = _figure(told["prefillTokensPerSecond"])
    return entry | {"instructions": bool(told["instructions"]), "bitmap": bitmap.hex()}


def _place(told: Mapping[str, Any], key: str) -> Document:
    """Return a place that a router tells of, checked; `key` names what is there."""
    name = str(told[key])
    if not (name.isprintable() and len(name) <= MOST_NAME):
        raise ValueError("a name is none")
    return {key: name, "atByte": _figure(told["atByte"])}


def _figure(told: object) -> float:
    if not isinstance(told, int | float) or not 0 <= told < MOST_NUMBER:
        raise ValueError("a figure is out of range")
    return float(told)


def router_samples(listed: Iterable[Document]) -> dict[str, SamplePrompt]:
    """Return hash of a beginning → the text that routers kept of it; empty where they keep none."""
    found = {}
    for each in listed:
        # what routers keep of a text ends where it varies; on top nothing is left
        sample = decode_sample(each["sample"]) if "sample" in each and "varies" not in each else None
        if sample is not None and sample.system:
            texts = {sample.system} if int(each["texts"]) < 2 and sample.whole else {sample.system, ""}
            found[str(each["hash"])] = SamplePrompt(sample.system, sample.tools, round(each["requests"]), texts)
    return found


def read_sample(name: str, given: InputFormat | None, shared: Container[str] = ()) -> dict[str, SamplePrompt]:
    """Return hash of a beginning → what the requests of a file that begin so have in common.

    Args:
        name: of the file.
        given: its format.
        shared: hashes of prefixes that sessions share, which are looked for too.

    Raises:
        InputError: the file cannot be read, or has no request.
    """
    found: dict[str, SamplePrompt] = {}
    prefixes: dict[str, SamplePrompt] = {}
    with inputs.opened(name, given) as content:
        if isinstance(content, InputText):
            raise InputError(f"{shown(name)}: expected requests (a body as JSON, or a log of them), not a prompt")
        for number, request in enumerate(content):
            if number >= MOST_SAMPLES:
                break
            if request.ask is None:
                continue
            _note_shared(prefixes, request.ask, shared)
            if not request.ask.system:
                continue
            key = f"{leading_of(request.ask)[0].hash:016x}"
            known = found.get(key)
            system = request.ask.system
            top = on_top(system)
            behind = system[top[-1].end :].lstrip() if top else ""
            if known is None:
                found[key] = SamplePrompt(system, request.ask.tools, texts={system}, behind=behind)
                continue
            known.requests += 1
            known.moved = known.moved or (bool(top) and system[: top[-1].end] != known.system[: top[-1].end])
            known.system = known.system[: common_length(known.system, system)]
            known.behind = known.behind[: common_length(known.behind, behind)]
            known.tools = known.tools if known.tools == request.ask.tools else ""
            if len(known.texts) < 2:
                known.texts.add(system)
    for each in found.values():
        each.system = each.behind if each.moved else each.system
    if not found and not prefixes:
        raise InputError(f"{shown(name)}: no request of it has a system prompt")
    return found | prefixes


def _note_shared(known: dict[str, SamplePrompt], ask: ParsedRequest, wanted: Container[str]) -> None:
    """Note the prefixes of a request that are looked for, with the text that its requests have in common so far.

    Requests share more than up to a mark; of a single one the rest is its own.
    """
    instructions = len(ask.tools.encode()) + len(ask.system.encode())
    whole = None
    for mark, end in zip(*marks_of(ask), strict=True):
        name = f"{mark:016x}"
        if name not in wanted:
            continue
        if whole is None:
            whole = _text(ask)
        in_messages = end > instructions
        text = whole if in_messages else ask.system
        prefix = known.get(name)
        if prefix is None:
            begins = text.encode()[: end - len(ask.tools.encode())].decode(errors="ignore")
            known[name] = SamplePrompt(begins, ask.tools, texts={begins, ""}, behind=text, in_messages=in_messages)
        else:
            prefix.requests += 1
            prefix.behind = prefix.system = prefix.behind[: common_length(prefix.behind, text)]


def _text(ask: ParsedRequest) -> str:
    """Return the text of a prompt: that of its system, then of its messages."""
    messages = [message for message in ask.messages if not (ask.system and message["role"] in SYSTEM_ROLES)]
    return "\n\n".join(text for text in (ask.system, *(text_of(each.get("content")) for each in messages)) if text)


def chosen(listed: Iterable[Document], sample: Mapping[str, SamplePrompt], wanted: str | None) -> Document:
    """Return the prefix to write: the one that is wanted, or the first one that the sample has.

    Raises:
        InputError: there is none.
    """
    entries: list[dict[str, Any]] = list(listed)
    if wanted is not None and all(each["hash"] != wanted for each in entries):
        raise InputError(f"--hash {wanted}: no router has such a prefix; the list names those that they have")
    for each in entries:
        if each["hash"] in sample and wanted in (None, each["hash"]):
            return each
    what = f"the prefix {wanted}" if wanted is not None else "a prefix of the list"
    raise InputError(f"there is no text of {what}: give requests of today with --sample FILE, as clients send them")


def note(each: Document) -> str:
    """Return what is known of how a prefix varies; empty where nothing is."""
    said = []
    if "near" in each:
        said.append(f"drift of {each['near']['group']} at byte {each['near']['atByte']:.0f}")
    if "varies" in each:
        rule = BY_ID.get(each["varies"]["rule"])  # a router of another version may have more rules
        what = rule.title if rule is not None else each["varies"]["rule"]
        said.append(f"{what} at byte {each['varies']['atByte']:.0f} differs")
    return "; ".join(said)


def saves(each: Document) -> float | None:
    """Return the replicas that computing a prefix for each of its requests keeps busy; None where no rate is known."""
    rate = each.get("prefillTokensPerSecond", 0.0)
    return float(each["tokensPerSecond"]) / rate if rate else None
