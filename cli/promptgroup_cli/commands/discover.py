"""`promptgroup discover`: list the prompts that deserve a group, and write a PromptGroup for one."""

import argparse
import json
from collections.abc import Mapping, Sequence
from contextlib import nullcontext

from promptgroup_cli.base.errors import ExitStatus, InputError, exit_statuses
from promptgroup_cli.base.flags import add_cluster, add_output, add_router, cluster_choice, group_name, whole_number
from promptgroup_cli.base.text import columns
from promptgroup_cli.reach.connect import ClusterConnection, Manifest, routers_at
from promptgroup_cli.reach.discovered import SamplePrompt, ask_all, chosen, note, read_sample, router_samples, saves
from promptgroup_cli.reach.files import STDIN, write_new
from promptgroup_cli.reach.inputs import InputFormat
from promptgroup_cli.reach.proposals import guest_name, host_of, worth_a_guest
from promptgroup_operator.base.printable import printable
from promptgroup_router.undeclared.unmatched import Document

LIMIT = 20
"""Default number of prefixes that are shown."""
HEADS = ("HASH", "MODEL", "TOKENS", "REQ/S", "TOKENS/S", "SHARE", "SAVES", "SESSIONS", "TEXTS", "IN SAMPLE", "NOTE")
SAMPLE_HEAD = HEADS.index("IN SAMPLE")
SHARED_HEADS = (
    "SHARED", "MODEL", "BEHIND", "ENDS IN", "TOKENS", "REQ/S", "CACHED", "SAVES", "REPLICAS", "SESSIONS", "IN SAMPLE",
)  # fmt: skip
MANY = 1000
"""Number of sessions or texts from which on the exact number is unknown."""
IMAGE = "vllm/vllm-openai:v0.32.0"
"""Image of a written group, as in the samples."""


def add(parser: argparse.ArgumentParser) -> None:
    """Add the command's description and flags."""
    parser.description = (
        "List the prompts that deserve a group: the heaviest beginnings of requests that no group declares, as the\n"
        "routers of the namespace saw them lately. Routers keep no text unless they run with --keep-samples; with\n"
        "--sample, the text is that of your own requests."
    )
    parser.epilog = exit_statuses(
        "there are prompts that no group declares, or the PromptGroup was written",
        "every request matched a group",
        "  promptgroup discover -n chat\n  promptgroup discover -n chat --sample requests.jsonl --write support.yaml\n",
    )
    add_cluster(parser)
    add_router(parser)
    parser.add_argument(
        "--limit", type=whole_number(1, 256), default=LIMIT, metavar="N", help="prefixes to list (default: %(default)s)"
    )
    parser.add_argument(
        "--sample",
        metavar="FILE",
        help="your own requests, in a format that `promptgroup lint` reads; - for standard input",
    )
    parser.add_argument(
        "--as",
        dest="format",
        type=InputFormat,
        choices=(InputFormat.REQUEST, InputFormat.LOG),
        help="format of the sample (default: by name)",
    )
    parser.add_argument(
        "--write",
        metavar="FILE",
        help="write a PromptGroup for the heaviest prefix whose text is known, or for --hash; - for standard output",
    )
    which = parser.add_mutually_exclusive_group()
    which.add_argument("--hash", metavar="HASH", help="the prefix to write, as the list names it")
    which.add_argument("--all", action="store_true", help="write a PromptGroup for each prefix whose text is known")
    parser.add_argument(
        "--host",
        type=group_name,
        metavar="NAME",
        help="write guests of this PromptGroup, on whose replicas their prompts are kept warm (default: the group "
        "without a prompt that serves the model, if there is one)",
    )
    parser.add_argument(
        "--name",
        type=group_name,
        default="discovered",
        metavar="NAME",
        help="name of that PromptGroup; with --all the beginning of names (default: %(default)s)",
    )
    add_output(parser, text="format of the list")


def run(arguments: argparse.Namespace) -> int:
    """Run the command and return its exit status."""
    with ClusterConnection(cluster_choice(arguments)) if arguments.router is None else nullcontext() as cluster:
        routers = cluster.routers(cluster.namespace) if cluster is not None else {}
        ours = arguments.write is not None and arguments.host is None and cluster is not None
        groups = cluster.list("PromptGroup", cluster.namespace) if ours and cluster is not None else []
        (shared, listed), silent = ask_all(routers or routers_at([arguments.router]))
    sample = None
    if arguments.sample is not None:
        sample = read_sample(arguments.sample, arguments.format, {str(prefix["hash"]) for prefix in shared})
    if arguments.write is not None:
        sample = sample if sample is not None else router_samples(listed)
        if not sample:
            raise InputError(
                "--write: these routers keep no text of prompts: give your own requests with --sample FILE, or "
                "install the routers with --keep-samples"
            )
        text = _manifests(arguments, [*shared, *listed], sample, groups)
        if arguments.write == STDIN:
            print(text, end="")
        else:
            write_new(arguments.write, text, "--write")
            print(f"wrote {arguments.write}")
        return ExitStatus.OK
    if arguments.output == "json":
        print(document(shared[: arguments.limit], listed[: arguments.limit], silent))
    else:
        if shared:
            print(shared_table(shared[: arguments.limit], sample), end="\n\n")
        whole = sum(float(item["tokensPerSecond"]) for item in listed)
        print(table(listed[: arguments.limit], whole, sample, silent))
    return ExitStatus.OK if shared or listed else ExitStatus.NEGATIVE


def _manifests(
    arguments: argparse.Namespace,
    prefixes: Sequence[Document],
    sample: Mapping[str, SamplePrompt],
    groups: Sequence[Manifest],
) -> str:
    """Return the PromptGroups to write: of the one chosen prefix, or of all whose text is in the sample."""
    if not arguments.all:
        result = chosen(prefixes, sample, arguments.hash)
        host = arguments.host or host_of(groups, result["model"])
        return manifest(arguments.name, result["model"], sample[result["hash"]], host)
    texts = []
    for prefix in worth_a_guest(prefixes, sample):
        host = arguments.host or host_of(groups, prefix["model"])
        name = guest_name(prefix, arguments.name)
        texts.append(manifest(name, prefix["model"], sample[prefix["hash"]], host))
    return "---\n".join(texts)


def document(shared: Sequence[Document], listed: Sequence[Document], silent: Sequence[str]) -> str:
    """Return both lists as JSON."""
    hidden = ("bitmaps", "sample")  # the text of prompts is written only on request
    shown = [{name: value for name, value in item.items() if name not in hidden} for item in listed]
    return json.dumps({"shared": list(shared), "unmatched": shown, "routersWithoutAnswer": list(silent)}, indent=2)


def shared_table(shared: Sequence[Document], sample: dict[str, SamplePrompt] | None) -> str:
    """Return the prefixes that sessions share and no group declares, for people.

    Args:
        shared: the prefixes, first those of which a group would save most.
        sample: hash → the text that the user's own requests have in common; None without a sample.
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
    sample_prompt = sample.get(str(prefix["hash"]))
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
        f"{sample_prompt.requests} requests" if sample_prompt is not None else "-",
    )


def table(
    listed: Sequence[Document], whole: float, sample: dict[str, SamplePrompt] | None, silent: Sequence[str]
) -> str:
    """Return the list for people.

    Args:
        listed: prefixes, the heaviest first.
        whole: prefix tokens a second of all requests without a group.
        sample: hash → the text that the user's own requests have in common; None without a sample.
        silent: routers that did not answer.
    """
    if not listed:
        return "Every request matched a group."
    rows = [HEADS, *(_row(item, whole, sample) for item in listed)]
    if sample is None:
        rows = [(*row[:SAMPLE_HEAD], *row[SAMPLE_HEAD + 1 :]) for row in rows]
    lines = columns(rows, right=range(2, 9))
    lines += [
        "",
        "A group would find TOKENS/S in its caches: each replica computes the text once, when it is warmed.",
        "SAVES is how many replicas are busy with TOKENS/S where no cache has them, by the measured rate of prefill.",
        "`--write FILE --hash HASH` makes a PromptGroup of a line.",
    ]
    if any("near" in item or "varies" in item for item in listed):
        lines.append(
            "NOTE: such requests miss the caches until their clients change: a group of the drifted text does not help."
        )
    if any(int(item["texts"]) > 1 for item in listed):
        lines.append(
            "TEXTS above 1: the text changes behind its beginning. `promptgroup lint` on a log says what changes."
        )
    lines += [f"Router {item} did not answer." for item in silent]
    return "\n".join(lines)


def _row(item: Document, whole: float, sample: dict[str, SamplePrompt] | None) -> tuple[str, ...]:
    saved = saves(item)
    sample_prompt = sample.get(str(item["hash"])) if sample is not None else None
    return (
        str(item["hash"]),
        str(item["model"]),
        f"{item['prefixTokens']:.0f}",
        f"{item['requestsPerSecond']:.2f}",
        f"{item['tokensPerSecond']:.0f}",
        f"{item['tokensPerSecond'] / whole:.0%}" if whole else "-",
        f"{saved:.2f}" if saved is not None else "-",
        _number(int(item["sessions"])),
        _number(int(item["texts"])),
        f"{sample_prompt.requests} requests" if sample_prompt is not None else "-",
        note(item) or "-",
    )


def _number(value: int) -> str:
    return str(value) if value < MANY else f">{MANY}"


def manifest(name: str, model: str, prompt: SamplePrompt, host: str = "") -> str:
    """Return a PromptGroup as YAML, with open decisions as comments; a guest where a host is named."""
    declared: dict[str, object] = {"system": prompt.system}
    if prompt.tools:
        declared["tools"] = json.loads(prompt.tools)
    own: dict[str, object] = {
        "model": model,
        "prompt": declared,
        "engine": {"image": IMAGE, "resources": {"limits": {"nvidia.com/gpu": 1}}},
        "replicas": 2,
    }
    made = {
        "apiVersion": "promptgroup.dev/v1alpha1",
        "kind": "PromptGroup",
        "metadata": {"name": name},
        "spec": {"engineFrom": {"promptGroup": host}, "prompt": declared} if host else own,
    }
    import yaml  # noqa: PLC0415 - a list needs none

    notes = [f"# Written by `promptgroup discover` from {prompt.requests} requests."]
    if host:
        notes.append(f"# Its prompt is kept warm on the replicas of PromptGroup {host}, and takes no GPU.")
    else:
        notes.append(
            "# Before you apply it: set the engine that serves the model, and the number of replicas "
            "(`promptgroup size`)."
        )
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
    if printable(text) != text:  # a prompt is not altered: YAML escapes it
        text = yaml.safe_dump(made, sort_keys=False, width=120)
    return "\n".join(notes) + "\n" + text
