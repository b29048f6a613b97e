"""The list of `promptgroup discover`, and the PromptGroup that it writes. Does no I/O."""

import json
from collections.abc import Sequence

import yaml

from promptgroup_cli.lint.volatile import BY_ID
from promptgroup_cli.reach.discovered import SamplePrompt
from promptgroup_cli.render.columns import columns
from promptgroup_operator.base.printable import printable
from promptgroup_router.undeclared.unmatched import Document

HEADS = ("HASH", "MODEL", "TOKENS", "REQ/S", "TOKENS/S", "SHARE", "SAVES", "SESSIONS", "TEXTS", "IN SAMPLE", "NOTE")
SAMPLE_HEAD = HEADS.index("IN SAMPLE")
SHARED_HEADS = (
    "SHARED", "MODEL", "BEHIND", "ENDS IN", "TOKENS", "REQ/S", "CACHED", "SAVES", "REPLICAS", "SESSIONS", "IN SAMPLE",
)  # fmt: skip
MANY = 1000
"""Sessions or texts from which their number is not known."""
IMAGE = "vllm/vllm-openai:v0.32.0"
"""Image of a written group, as in the samples."""


def document(shared: Sequence[Document], listed: Sequence[Document], silent: Sequence[str]) -> str:
    """Return both lists as JSON."""
    hidden = ("bitmaps", "sample")  # text of prompts is written where it is asked for, and nowhere else
    shown = [{name: value for name, value in each.items() if name not in hidden} for each in listed]
    return json.dumps({"shared": list(shared), "unmatched": shown, "routersWithoutAnswer": list(silent)}, indent=2)


def shared_table(shared: Sequence[Document], sample: dict[str, SamplePrompt] | None) -> str:
    """Return the prefixes that sessions share and no group declares, for people.

    Args:
        shared: the prefixes, first those of which a group would save most.
        sample: hash → what the user's own requests have of it; None without a sample.
    """
    rows = [SHARED_HEADS, *(_shared_row(prefix, sample or {}) for prefix in shared)]
    if sample is None:
        rows = [row[:-1] for row in rows]
    return "\n".join(
        [
            *columns(rows, right=range(4, 10)),
            "",
            "SAVES is the tokens a second of a prefix that engines computed again: a group would have them cached.",
            "CACHED is the share of its tokens that they found. Lines overlap where one prefix begins with another.",
            "A prefix that ends in messages matches a group once clients send it as the system message, or name the",
            "group as their model and leave it out.",
        ]
    )


def _shared_row(prefix: Document, sample: dict[str, SamplePrompt]) -> tuple[str, ...]:
    computed, whole = float(prefix["computedTokensPerSecond"]), float(prefix["tokensPerSecond"])
    rate = prefix.get("prefillTokensPerSecond", 0.0)
    known = sample.get(str(prefix["hash"]))
    return (
        str(prefix["hash"]),
        str(prefix["model"]),
        str(prefix["group"]),
        "system text" if prefix["instructions"] else "messages",
        f"{prefix['prefixTokens']:.0f}",
        f"{prefix['requestsPerSecond']:.2f}",
        f"{max(0.0, 1 - computed / whole):.0%}" if whole > 0 else "-",
        f"{computed:.1f}",
        f"{computed / rate:.2f}" if rate else "-",
        _number(int(prefix["sessions"])),
        f"{known.requests} requests" if known is not None else "-",
    )


def table(
    listed: Sequence[Document], whole: float, sample: dict[str, SamplePrompt] | None, silent: Sequence[str]
) -> str:
    """Return the list for people.

    Args:
        listed: prefixes, the heaviest first.
        whole: prefix tokens a second of all requests without a group.
        sample: hash → what the user's own requests have of it; None without a sample.
        silent: routers that did not answer.
    """
    if not listed:
        return "Every request matched a group."
    rows = [HEADS, *(_row(each, whole, sample) for each in listed)]
    if sample is None:
        rows = [(*row[:SAMPLE_HEAD], *row[SAMPLE_HEAD + 1 :]) for row in rows]
    lines = columns(rows, right=range(2, 9))
    lines += [
        "",
        "A group would find TOKENS/S in its caches: each replica computes the text once, when it is warmed.",
        "SAVES is how many replicas are busy with TOKENS/S where no cache has them, by the measured rate of prefill.",
        "`--write FILE --hash HASH` makes a PromptGroup of a line.",
    ]
    if any("near" in each or "varies" in each for each in listed):
        lines.append(
            "NOTE: such requests miss the caches until their clients change: a group of the drifted text does not help."
        )
    if any(int(each["texts"]) > 1 for each in listed):
        lines.append(
            "TEXTS above 1: the text changes behind its beginning. `promptgroup lint` on a log says what changes."
        )
    lines += [f"Router {each} did not answer." for each in silent]
    return "\n".join(lines)


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


def _row(each: Document, whole: float, sample: dict[str, SamplePrompt] | None) -> tuple[str, ...]:
    saved = saves(each)
    known = sample.get(str(each["hash"])) if sample is not None else None
    return (
        str(each["hash"]),
        str(each["model"]),
        f"{each['prefixTokens']:.0f}",
        f"{each['requestsPerSecond']:.2f}",
        f"{each['tokensPerSecond']:.0f}",
        f"{each['tokensPerSecond'] / whole:.0%}" if whole else "-",
        f"{saved:.2f}" if saved is not None else "-",
        _number(int(each["sessions"])),
        _number(int(each["texts"])),
        f"{known.requests} requests" if known is not None else "-",
        note(each) or "-",
    )


def _number(value: int) -> str:
    return str(value) if value < MANY else f">{MANY}"


def manifest(name: str, model: str, prompt: SamplePrompt) -> str:
    """Return a PromptGroup as YAML, with what is left to decide as comments."""
    declared: dict[str, object] = {"system": prompt.system}
    if prompt.tools:
        declared["tools"] = json.loads(prompt.tools)
    made = {
        "apiVersion": "promptgroup.dev/v1alpha1",
        "kind": "PromptGroup",
        "metadata": {"name": name},
        "spec": {
            "model": model,
            "prompt": declared,
            "engine": {"image": IMAGE, "resources": {"limits": {"nvidia.com/gpu": 1}}},
            "replicas": 2,
        },
    }
    notes = [
        f"# Written by `promptgroup discover` from {prompt.requests} requests.",
        "# Before you apply it: set the engine that serves the model, and the number of replicas (`promptgroup size`).",
    ]
    if prompt.moved:
        notes.append(
            "# The requests begin with text that differs, such as a time.\n"
            "# They match this group once their clients move it behind this text."
        )
    if prompt.in_messages:
        notes.append(
            "# The requests have the end of this text in their messages. They match this group once their clients\n"
            "# send it as the system message, or name the group as their model and leave the text out."
        )
    if prompt.varies:
        notes.append(
            "# The requests differ behind this text: read its end, and cut it where a sentence is the same for all."
        )
    text = yaml.safe_dump(made, sort_keys=False, allow_unicode=True, width=120)
    if printable(text) != text:  # a prompt stays what it is: the document has its own escapes
        text = yaml.safe_dump(made, sort_keys=False, width=120)
    return "\n".join(notes) + "\n" + text
