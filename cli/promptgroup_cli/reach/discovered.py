"""Queries routers for prompts that no group declares, and finds the user's own requests that begin with them."""

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
from promptgroup_router.prefixes.leading import leading_of
from promptgroup_router.prefixes.prompt_marks import marks_of
from promptgroup_router.prefixes.volatile import on_top
from promptgroup_router.rings.claims import common_length
from promptgroup_router.undeclared import shared_prefixes
from promptgroup_router.undeclared.unmatched import BYTES, CAPACITY, Document, decode_sample, merge

MOST_NUMBER = 1e15
"""A figure above it is none."""
MOST_NAME = 320
"""Characters of a group's label or a rule's id at most."""
MOST_SAMPLES = 10_000
"""Requests of a sample that are compared; more add nothing about the text that they share."""


@dataclass(slots=True)
class SamplePrompt:
    """The text that requests of a sample with one beginning have in common."""

    system: str
    """The text that all of them begin with."""
    tools: str
    """Their tools in canonical form."""
    requests: int = 1
    texts: set[str] = field(default_factory=set)
    """Distinct whole system texts."""
    behind: str = ""
    """The text that they share after volatile text at the beginning; empty without such text."""
    moved: bool = False
    """True if `system` is replaced by that text, since the text at the beginning differs."""
    in_messages: bool = False
    """True if its end is text of messages."""

    @property
    def varies(self) -> bool:
        """True if the text after the common text varies."""
        return len(self.texts) > 1


class Discovered(NamedTuple):
    """The prompts that no group declares, as routers report them."""

    shared: list[Document]
    """Prefixes that sessions share; first those of which a group would save most."""
    unmatched: list[Document]
    """Beginnings of requests without a group, the heaviest first."""


def ask_all(routers: Mapping[str, Router]) -> tuple[Discovered, tuple[str, ...]]:
    """Return the merged reports of all routers, and the names of routers that did not answer.

    Raises:
        ReachError: none answered.
    """
    result, failed = ask_each(routers, ask_one)
    documents = list(heard(result, failed).values())
    shared = shared_prefixes.worth_a_group(shared_prefixes.merge(documents)["shared"])
    return Discovered(shared, together(documents)), tuple(failed)


def ask_one(request: Router) -> Document:
    """Return one router's report, validated; raises as readers of `ask_each` do."""
    result = bounded_json.parse(request("/unmatched", None))
    return {
        "unmatched": [_entry(entry) for entry in result["unmatched"][:CAPACITY]],
        "shared": [_shared(entry) for entry in result.get("shared", ())[:CAPACITY]],  # older routers report none
    }


def together(documents: Sequence[Document]) -> list[Document]:
    """Return the prefixes that several routers report, the heaviest first."""
    listed: list[Document] = merge(documents)["unmatched"]
    return listed


_NUMBERS = (
    "systemBytes", "prefixTokens", "requests", "requestsPerSecond", "tokensPerSecond", "tokensPerSecondTooHighBy",
    "sessions", "texts",
)  # fmt: skip


def _entry(result: Mapping[str, Any]) -> Document:
    """Return an entry of a router's answer, validated."""
    numbers = {name: float(result[name]) for name in _NUMBERS}
    bitmaps = bytes.fromhex(result["bitmaps"])
    if len(bitmaps) != 2 * BYTES or not all(0 <= number < MOST_NUMBER for number in numbers.values()):
        raise ValueError("a figure is out of range")
    entry: Document = numbers | {"model": str(result["model"]), "hash": str(result["hash"]), "bitmaps": bitmaps.hex()}
    entry |= {
        name: _place(result[name], key) for name, key in (("near", "group"), ("varies", "rule")) if name in result
    }
    if "prefillTokensPerSecond" in result:
        entry["prefillTokensPerSecond"] = _figure(result["prefillTokensPerSecond"])
    if "sample" in result:
        sample = decode_sample(result["sample"])
        if len(sample.system) + len(sample.tools) > MAX_SAMPLE_BYTES:
            raise ValueError("a sample is too long")
        if sample.tools:
            bounded_json.parse(sample.tools.encode())  # as the PromptGroup that is written has them
        entry["sample"] = result["sample"]
    return entry


def _shared(result: Mapping[str, Any]) -> Document:
    """Return an entry of the shared prefixes, checked."""
    bitmap = bytes.fromhex(result["bitmap"])
    if len(bitmap) != BYTES:
        raise ValueError("a figure is out of range")
    entry: Document = {name: _figure(result[name]) for name in ("prefixTokens", *shared_prefixes.ADDED)}
    for name in ("model", "group", "hash", "within"):
        entry[name] = str(result[name])
        if name != "model" and not (entry[name].isprintable() and len(entry[name]) <= MOST_NAME):
            raise ValueError("a name is none")
    if "prefillTokensPerSecond" in result:
        entry["prefillTokensPerSecond"] = _figure(result["prefillTokensPerSecond"])
    return entry | {"instructions": bool(result["instructions"]), "bitmap": bitmap.hex()}


def _place(result: Mapping[str, Any], key: str) -> Document:
    """Return a place in a router's answer, validated; `key` is the field with the name of what is there."""
    name = str(result[key])
    if not (name.isprintable() and len(name) <= MOST_NAME):
        raise ValueError("a name is none")
    return {key: name, "atByte": _figure(result["atByte"])}


def _figure(result: object) -> float:
    if not isinstance(result, int | float) or not 0 <= result < MOST_NUMBER:
        raise ValueError("a figure is out of range")
    return float(result)


def router_samples(listed: Iterable[Document]) -> dict[str, SamplePrompt]:
    """Return hash of a prefix → the text that routers stored; empty where they store none."""
    result = {}
    for item in listed:
        # routers store a text up to where it varies; if that is its beginning, nothing is left
        sample = decode_sample(item["sample"]) if "sample" in item and "varies" not in item else None
        if sample is not None and sample.system:
            texts = {sample.system} if int(item["texts"]) < 2 and sample.whole else {sample.system, ""}
            result[str(item["hash"])] = SamplePrompt(sample.system, sample.tools, round(item["requests"]), texts)
    return result


def read_sample(name: str, given: InputFormat | None, shared: Container[str] = ()) -> dict[str, SamplePrompt]:
    """Return hash of a prefix → the text that the requests of a file with this prefix have in common.

    Args:
        name: of the file.
        given: its format.
        shared: hashes of prefixes that sessions share, which are searched for too.

    Raises:
        InputError: the file cannot be read, or has no request.
    """
    sample_prompts: dict[str, SamplePrompt] = {}
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
            prompt = sample_prompts.get(key)
            system = request.ask.system
            top = on_top(system)
            behind = system[top[-1].end :].lstrip() if top else ""
            if prompt is None:
                sample_prompts[key] = SamplePrompt(system, request.ask.tools, texts={system}, behind=behind)
                continue
            prompt.requests += 1
            prompt.moved = prompt.moved or (bool(top) and system[: top[-1].end] != prompt.system[: top[-1].end])
            prompt.system = prompt.system[: common_length(prompt.system, system)]
            prompt.behind = prompt.behind[: common_length(prompt.behind, behind)]
            prompt.tools = prompt.tools if prompt.tools == request.ask.tools else ""
            if len(prompt.texts) < 2:
                prompt.texts.add(system)
    for sample_prompt in sample_prompts.values():
        sample_prompt.system = sample_prompt.behind if sample_prompt.moved else sample_prompt.system
    if not sample_prompts and not prefixes:
        raise InputError(f"{shown(name)}: no request of it has a system prompt")
    return sample_prompts | prefixes


def _note_shared(sample_prompts: dict[str, SamplePrompt], request: ParsedRequest, desired: Container[str]) -> None:
    """Record the desired prefixes of a request, with the text that their requests have in common so far.

    Requests share more than up to a mark; of a single one the rest is its own.
    """
    instructions = len(request.tools.encode()) + len(request.system.encode())
    whole = None
    for mark, end in zip(*marks_of(request), strict=True):
        name = f"{mark:016x}"
        if name not in desired:
            continue
        if whole is None:
            whole = _text(request)
        in_messages = end > instructions
        text = whole if in_messages else request.system
        prefix = sample_prompts.get(name)
        if prefix is None:
            begins = text.encode()[: end - len(request.tools.encode())].decode(errors="ignore")
            sample_prompts[name] = SamplePrompt(
                begins, request.tools, texts={begins, ""}, behind=text, in_messages=in_messages
            )
        else:
            prefix.requests += 1
            prefix.behind = prefix.system = prefix.behind[: common_length(prefix.behind, text)]


def _text(request: ParsedRequest) -> str:
    """Return the text of a prompt: that of its system, then of its messages."""
    messages = [message for message in request.messages if not (request.system and message["role"] in SYSTEM_ROLES)]
    return "\n\n".join(
        text for text in (request.system, *(text_of(message.get("content")) for message in messages)) if text
    )


def chosen(listed: Iterable[Document], sample: Mapping[str, SamplePrompt], desired: str | None) -> Document:
    """Return the prefix to write: the one that is wanted, or the first one that the sample has.

    Raises:
        InputError: there is none.
    """
    entries: list[dict[str, Any]] = list(listed)
    if desired is not None and all(entry["hash"] != desired for entry in entries):
        raise InputError(f"--hash {desired}: no router has such a prefix; the list names those that they have")
    for entry in entries:
        if entry["hash"] in sample and desired in (None, entry["hash"]):
            return entry
    subject = f"the prefix {desired}" if desired is not None else "a prefix of the list"
    raise InputError(f"there is no text of {subject}: give requests of today with --sample FILE, as clients send them")


def note(document: Document) -> str:
    """Describe how a prefix varies; empty where no variation was observed."""
    value = []
    if "near" in document:
        value.append(f"drift of {document['near']['group']} at byte {document['near']['atByte']:.0f}")
    if "varies" in document:
        rule = BY_ID.get(document["varies"]["rule"])  # a router of another version may have more rules
        title = rule.title if rule is not None else document["varies"]["rule"]
        value.append(f"{title} at byte {document['varies']['atByte']:.0f} differs")
    return "; ".join(value)


def saves(document: Document) -> float | None:
    """Return the replicas that computing a prefix for each of its requests keeps busy; None without a measured rate."""
    rate = document.get("prefillTokensPerSecond", 0.0)
    return float(document["tokensPerSecond"]) / rate if rate else None
