"""Finds the requests that begin alike, and where they part: a radix tree of prompts, of bounded size.

root ── "You are the support …" (900 of 1000) ─┬─ "Today is …" (850)   ← requests part here
                                               └─ (ends: 50)
"""

import dataclasses
import hashlib
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, replace

from promptgroup_cli.lint.finding import Finding, FindingPlace, Rule, Severity
from promptgroup_cli.lint.length import TOKEN_BYTES
from promptgroup_cli.lint.length import tokens as estimated_tokens
from promptgroup_cli.lint.subject import LintSubject
from promptgroup_contract.fingerprint import Fingerprint, short

PREFIX_PARTS = Rule(
    "prefix-parts",
    Severity.ERROR,
    "prompts that begin alike and then are all different",
    "nothing is shared from there on, though static text may follow",
    "move what differs behind the static text: to the end of the prompt, or into the last user message",
)
LOW_SHARING = Rule(
    "low-sharing",
    Severity.WARNING,
    "few requests share a prefix",
    "groups of replicas pay where 20 to 30 % of the requests share one",
    "look at the table of prefixes: what should be the same, and is not?",
)
RULES = (PREFIX_PARTS, LOW_SHARING)

NODES = 4096
"""Most nodes of the tree; beyond it the lightest leaves are dropped. Prefixes of 1 in 1000 requests remain."""
BYTES = 16 << 20
"""Most bytes of text in the tree; beyond it the lightest leaves are dropped as well."""
FEWEST = 10
"""Fewest requests for a finding about shares."""
DIFFERENT = 0.5
"""Different prompts per request from which on requests part."""
SHARED = 0.3
"""Share of requests with a common prefix under which grouping does not pay."""
BY_CHANCE = 16
"""Bytes that different prompts may share by chance, as in `You are a `."""
LISTED = 20
LEAST = 0.01
"""Prefixes in the table, and the least share of the requests that brings one into it."""


@dataclass(slots=True)
class _Node:
    edge: bytes
    """Bytes that it adds to its parent's prefix."""
    place: FindingPlace
    """Place of its first request."""
    count: int = 0
    """Requests whose prompt begins with this node's prefix."""
    ends: int = 0
    """Requests whose prompt is this prefix."""
    prompts: int = 0
    """Different prompts in children that were dropped."""
    children: "dict[int, _Node]" = dataclasses.field(default_factory=dict)
    """Children by their first byte."""


@dataclass(frozen=True, slots=True)
class PromptPrefix:
    """A line of the table."""

    model: str
    hash: str
    """Hash of its bytes; the short fingerprint, if it is a whole prompt."""
    length: int
    """Bytes."""
    tokens: int
    """Estimated."""
    requests: int
    share: float
    """Share of all requests of the model."""
    prompts: int
    """Different prompts that begin with it; 1 when it is a prompt itself."""
    field: str
    offset: int
    """Offset at which its requests part."""


class Prefixes:
    """The prompts of all requests, by model."""

    def __init__(self, block: int) -> None:
        self._block = block * TOKEN_BYTES
        self._roots: dict[str, _Node] = {}
        self._nodes = self._bytes = 0

    def see(self, subject: LintSubject) -> None:
        """Count a request's prompt."""
        if subject.ask is None:
            return
        place = FindingPlace(subject.file, subject.line, "system", 0)
        prompt = b"".join((subject.tools.encode(), b"\0", subject.system.encode(errors="surrogatepass")))
        root = self._roots.get(subject.model)
        if root is None:
            root = self._roots[subject.model] = _Node(b"", place)
        self._insert(root, prompt, place)
        if self._nodes > NODES or self._bytes > BYTES:
            self._prune()

    def _insert(self, node: _Node, prompt: bytes, place: FindingPlace) -> None:
        node.count += 1
        at = 0
        while at < len(prompt):
            child = node.children.get(prompt[at])
            if child is None:
                child = node.children[prompt[at]] = _Node(prompt[at:], place)
                self._nodes += 1
                self._bytes += len(child.edge)
            elif not prompt.startswith(child.edge, at):
                child = self._split(node, child, _common(child.edge, prompt[at : at + len(child.edge)]))
            child.count += 1
            at += len(child.edge)
            node = child
        node.ends += 1

    def _split(self, parent: _Node, child: _Node, length: int) -> _Node:
        upper = _Node(child.edge[:length], child.place, child.count, children={child.edge[length]: child})
        child.edge = child.edge[length:]
        parent.children[upper.edge[0]] = upper
        self._nodes += 1
        return upper

    def _prune(self) -> None:
        """Drop the lightest leaves, down to half of the limits; their counts stay with their parents."""
        while self._nodes > NODES // 2 or self._bytes > BYTES // 2:
            leaves = [
                (leaf.count, parent, first) for root in self._roots.values() for parent, first, leaf in _leaves(root)
            ]
            leaves.sort(key=lambda item: item[0])
            for _, parent, first in leaves[: len(leaves) // 2 + 1]:
                leaf = parent.children.pop(first)
                parent.prompts += leaf.prompts + (leaf.ends > 0)
                self._nodes -= 1
                self._bytes -= len(leaf.edge)

    def table(self) -> list[PromptPrefix]:
        """Return the prefixes of a block or more that most requests share, heaviest first."""
        result = []
        for model, root in self._roots.items():
            different = _different(root)
            for node, prefix in _listed(root, self._block):
                hashed = short(Fingerprint(hashlib.sha256(prefix).hexdigest()))
                part, offset = _position(prefix)
                length = _length(prefix)
                share = node.count / root.count
                prompts = different[id(node)]
                result.append(
                    PromptPrefix(
                        model, hashed, length, estimated_tokens(length), node.count, share, prompts, part, offset
                    )
                )
        result.sort(key=lambda item: (-item.requests, item.length))
        return result[:LISTED]

    def findings(self) -> Iterator[Finding]:
        """Yield where requests part that should not, and whether they share too little."""
        for root in self._roots.values():
            if root.count < FEWEST:
                continue
            yield from _parting(root, self._block)
            shared = _shared(root, self._block)
            if shared < SHARED * root.count:
                text = f"{shared} of {root.count} requests share a block or more of their prompt with another one"
                yield Finding(LOW_SHARING, LOW_SHARING.severity, root.place, text, root.count)


def _common(a: bytes, b: bytes) -> int:
    """Return the length of the longest common prefix of two texts that differ."""
    low, high = 0, min(len(a), len(b))
    while low < high:
        middle = (low + high + 1) // 2
        if a[:middle] == b[:middle]:
            low = middle
        else:
            high = middle - 1
    return low


def _leaves(root: _Node) -> Iterator[tuple[_Node, int, _Node]]:
    """Yield (parent, first byte, leaf)."""
    stack = [root]
    while stack:
        node = stack.pop()
        for first, child in node.children.items():
            if child.children:
                stack.append(child)
            else:
                yield node, first, child


def _walk(root: _Node) -> Iterator[tuple[_Node, bytes]]:
    """Yield (node, its whole prefix)."""
    stack = [(root, b"")]
    while stack:
        node, prefix = stack.pop()
        yield node, prefix
        stack += [(child, prefix + child.edge) for child in node.children.values()]


def _listed(root: _Node, block: int) -> Iterator[tuple[_Node, bytes]]:
    """Yield the nodes, with their prefixes, that are a block longer than the listed one above, or are prompts."""
    stack = [(root, b"", 0)]
    while stack:
        node, prefix, above = stack.pop()
        length = _length(prefix)
        forks = node.prompts > 0 or len(node.children) > 1
        if node.count < max(2, LEAST * root.count):
            continue
        if length >= block and (node.ends or (forks and length >= above + block)):
            yield node, prefix
            above = length
        stack += [(item, prefix + item.edge, above) for item in node.children.values()]


def _different(root: _Node) -> Mapping[int, int]:
    """Return node (its id) → different prompts with its prefix, at most its requests: dropped ones may recur."""
    result: dict[int, int] = {}
    for node, _ in reversed(list(_walk(root))):  # children before their parents
        below = sum(result[id(item)] for item in node.children.values())
        result[id(node)] = min(node.count, below + node.prompts + (node.ends > 0))
    return result


def _length(prefix: bytes) -> int:
    """Return the bytes of a prefix, less the separator between tools and system text."""
    return len(prefix) - (b"\0" in prefix)


def _position(prefix: bytes) -> tuple[str, int]:
    """Return the position of the byte after a prefix: the part of the prompt, and the offset in it."""
    tools, end, system = prefix.partition(b"\0")
    return ("system", len(system)) if end else ("tools", len(tools))


def _parting(root: _Node, block: int) -> Iterator[Finding]:
    """Yield the nodes closest to the root after which most requests differ.

    Where each branch is a block long, separate prompts begin there, and each branch is examined separately.
    """
    different = _different(root)
    stack = [(root, b"")]
    while stack:
        node, prefix = stack.pop()
        ways = node.children.values()
        alone = node.prompts > 0 or all(way.count == 1 for way in ways)
        parted = alone or any(way.children and len(way.edge) < block for way in ways)
        if node.count < FEWEST:
            continue
        if parted and len(prefix) > BY_CHANCE and different[id(node)] >= DIFFERENT * node.count:
            part, offset = _position(prefix)
            text = f"{node.count} requests share {offset} bytes of {part} and part there, {different[id(node)]} prompts"
            place = replace(node.place, field=part, offset=offset)
            yield Finding(PREFIX_PARTS, PREFIX_PARTS.severity, place, text, node.count)
        else:
            stack += [(way, prefix + way.edge) for way in ways]


def _shared(root: _Node, block: int) -> int:
    """Return the number of requests that share a block or more of their prompt with another one."""
    total = 0
    stack = [(root, -1)]  # the byte between tools and system text
    while stack:
        node, depth = stack.pop()
        depth += len(node.edge)
        if depth >= block:
            total += node.count if node.count > 1 else 0
        else:
            stack += [(child, depth) for child in node.children.values()]
    return total
