"""Looks up declared prompts by the start of a request's text. Does no I/O and reads no clock.

The declared texts of a model form one tree for each tool list, branching at the characters in which they differ
(a PATRICIA tree: Morrison, 1968). A lookup follows one path: at a branch it looks at one character of the request, and
at the end it compares the request with one declared text. The cost is that of one comparison, plus one step for each
declared text that the request's own begins with or branches off from, however many texts are declared.

A text that has not been read is known by its length and hash alone. The request is hashed once, at most up to the
longest of these lengths, and the hash is taken at each length.

A prefix that has messages behind its system text is known by their number and its hash. It is longer than any prefix
without messages that the same request begins with, since it has the request's whole system text.
"""

from collections.abc import Callable, Iterable, Iterator, Sequence
from itertools import pairwise
from typing import Generic, NamedTuple, TypeVar

from promptgroup_contract.fingerprint import Fingerprint, hashes_with_messages, prefix_hashes

MOST_LENGTHS = 256
"""Lengths of unread texts that a request is hashed at, 1 µs each. Of more, the longest ones are taken: the others match
once their text has been read, which is within seconds."""
MOST_COUNTS = 16
"""Different numbers of declared messages that a request is hashed at; of more, the greatest ones are taken."""
LONGEST = 8
"""Declared texts per tool list that `longest` returns: to look for the end of one in a request takes 2 µs."""

_T = TypeVar("_T")


class Claim(NamedTuple, Generic[_T]):
    """A declared prefix."""

    entry: _T
    namespace: str
    fingerprint: Fingerprint
    system_bytes: int
    """Length of the system text in UTF-8."""
    system: str | None
    """The system text, once it has been read."""
    tools: str
    """The tools in canonical form; empty for none, and while the prompt has not been read."""
    messages: int = 0
    """Number of messages behind the system text that belong to the prefix."""


class Alike(NamedTuple, Generic[_T]):
    """A declared prefix, and how much of it a request's text begins with."""

    claim: Claim[_T]
    characters: int


class _Ranked(NamedTuple, Generic[_T]):
    age: int
    """Place in the order in which groups claim prefixes; the oldest has 0."""
    claim: Claim[_T]


_Claimants = dict[str, _Ranked[_T]]
"""Namespace → its claim on one prefix; the oldest first."""


class _Node(Generic[_T]):
    """A point at which declared texts end or differ."""

    __slots__ = ("children", "claimants", "depth", "shortest", "text")

    def __init__(self, depth: int, text: str) -> None:
        self.depth = depth
        """Characters that all texts below have in common."""
        self.text = text
        """One of the texts below; the one that ends here if one does."""
        self.claimants: _Claimants[_T] = {}
        """The claims on the text that ends here."""
        self.children: dict[str, _Node[_T]] = {}
        """First character that differs → the texts that have it."""
        self.shortest: Claim[_T] | None = None
        """The shortest of the texts below."""


class Claims(Generic[_T]):
    """The declared prefixes of a model.

    Several namespaces may claim one prefix, each for its own requests; within a namespace the first claim counts.
    """

    def __init__(self, claims: Iterable[Claim[_T]]) -> None:
        """Index the claims, which come in the order in which groups claim prefixes: the oldest first."""
        texts: dict[str, dict[str, _Claimants[_T]]] = {}
        unread: dict[int, dict[Fingerprint, _Claimants[_T]]] = {}
        with_messages: dict[int, dict[Fingerprint, _Claimants[_T]]] = {}
        for age, claim in enumerate(claims):
            if claim.messages:
                claimants = with_messages.setdefault(claim.messages, {}).setdefault(claim.fingerprint, {})
            elif claim.system is not None:
                claimants = texts.setdefault(claim.tools, {}).setdefault(claim.system, {})
            else:
                claimants = unread.setdefault(claim.system_bytes, {}).setdefault(claim.fingerprint, {})
            claimants.setdefault(claim.namespace, _Ranked(age, claim))
        self._trees = {tools: _tree(sorted(declared.items())) for tools, declared in texts.items()}
        self._longest = {
            tools: tuple(
                next(iter(claimants.values())).claim
                for _, claimants in sorted(declared.items(), key=lambda item: -len(item[0]))[:LONGEST]
            )
            for tools, declared in texts.items()
        }
        self._lengths = sorted(unread)[-MOST_LENGTHS:]
        self._unread = {length: unread[length] for length in self._lengths}
        self._with_messages = {
            count: with_messages[count] for count in sorted(with_messages, reverse=True)[:MOST_COUNTS]
        }

    def match(
        self, tools: str, text: str, namespace: str = "", first_messages: Callable[[int], str | None] | None = None
    ) -> _T | None:
        """Return the declared prefix that a request belongs to, or None.

        Args:
            tools: the request's tools in canonical form.
            text: its system text.
            namespace: the namespace of the request. If it is empty, it is that of the oldest claim that the request
                matches: a younger claim of another namespace takes no requests from an older one.
            first_messages: returns as many of the request's first messages in canonical form, None if they cannot
                be declared.

        Returns:
            The longest match in that namespace.
        """
        matches = self._matches(tools, text)
        if self._with_messages and first_messages is not None:
            matches = self._matches_with_messages(tools, text, first_messages) + matches
        if not matches:
            return None
        if not namespace:
            if len(matches) == 1:
                return next(iter(matches[0].values())).claim.entry
            namespace = min(next(iter(claimants.values())) for claimants in matches).claim.namespace
        for claimants in matches:
            if namespace in claimants:
                return claimants[namespace].claim.entry
        return None

    def alike(self, tools: str, text: str) -> Iterator[Alike[_T]]:
        """Yield declared prefixes that begin like a text, those that have more in common with it first.

        Of several that have as much in common the shortest is yielded. All have the same tools, and have been read.
        """
        root = self._trees.get(tools)
        if root is None:
            return
        path = _path(root, text)
        shared = common_length(path[-1].text, text)
        before: Claim[_T] | None = None
        for number in range(len(path) - 1, -1, -1):
            node = path[number]
            # below a node deeper than the first difference, no text has more in common than those of the node above it
            if number and path[number - 1].depth >= shared:
                continue
            claim = node.shortest
            if claim is not None and claim is not before:
                yield Alike(claim, min(shared, node.depth))
                before = claim

    def longest(self, tools: str) -> Sequence[Claim[_T]]:
        """Return the longest declared prefixes with these tools, at most LONGEST."""
        return self._longest.get(tools, ())

    def _matches(self, tools: str, text: str) -> "list[_Claimants[_T]]":
        """Return the claims on each declared prefix that the text begins with, the longest prefix first."""
        root = self._trees.get(tools)
        path: list[_Node[_T]] = []
        if root is not None:
            path = [node for node in reversed(_path(root, text)) if node.claimants]
            # nearly always the text begins with the longest of them, and so with all
            if path and not text.startswith(path[0].text):
                shared = common_length(path[0].text, text)
                path = [node for node in path if node.depth <= shared]
        if not self._lengths:
            return [node.claimants for node in path]
        result = [(next(iter(node.claimants.values())).claim.system_bytes, node.claimants) for node in path]
        for length, fingerprint in prefix_hashes(tools, text.encode(), self._lengths):
            claimants = self._unread[length].get(fingerprint)
            if claimants is not None:
                result.append((length, claimants))
        return [claimants for _, claimants in sorted(result, key=lambda item: -item[0])]

    def _matches_with_messages(
        self, tools: str, text: str, first_messages: Callable[[int], str | None]
    ) -> "list[_Claimants[_T]]":
        """Return the claims on prefixes that have messages and that a request begins with, the longest first."""
        starts = [(count, start) for count in self._with_messages if (start := first_messages(count)) is not None]
        if not starts:
            return []
        hashes = hashes_with_messages(tools, text.encode(), [start for _, start in starts])
        result = (
            (self._with_messages[count].get(fingerprint))
            for (count, _), fingerprint in zip(starts, hashes, strict=True)
        )
        return [claimants for claimants in result if claimants is not None]


def _path(root: _Node[_T], text: str) -> list[_Node[_T]]:
    """Return the nodes that a text leads to. Only the characters at the branches are compared."""
    node, path, length = root, [root], len(text)
    while node.depth < length:
        child = node.children.get(text[node.depth])
        if child is None:
            break
        path.append(child)
        node = child
    return path


def _tree(declared: Sequence[tuple[str, _Claimants[_T]]]) -> _Node[_T]:
    """Return the tree of texts that are given in order, each once."""
    root: _Node[_T] = _Node(0, declared[0][0])
    path = [root]
    starts = [0, *(common_length(before, text) for (before, _), (text, _) in pairwise(declared))]
    for (text, claimants), start in zip(declared, starts, strict=True):
        left: _Node[_T] | None = None
        while path[-1].depth > start:
            left = path.pop()
        if path[-1].depth < start and left is not None:
            between: _Node[_T] = _Node(start, text)
            between.children[left.text[start]] = left
            path[-1].children[text[path[-1].depth]] = between
            path.append(between)
        if len(text) > path[-1].depth:
            leaf: _Node[_T] = _Node(len(text), text)
            path[-1].children[text[path[-1].depth]] = leaf
            path.append(leaf)
        path[-1].claimants, path[-1].text = claimants, text
    _note_shortest(root)
    return root


def _note_shortest(root: _Node[_T]) -> None:
    order = [root]
    for node in order:
        order += node.children.values()
    for node in reversed(order):
        below = [child.shortest for child in node.children.values() if child.shortest is not None]
        own = [next(iter(node.claimants.values())).claim] if node.claimants else []
        node.shortest = min(own + below, key=lambda claim: len(claim.system or ""), default=None)


def common_length(one: str, other: str) -> int:
    """Return the number of characters that both texts begin with.

    Compares windows that double until one holds a difference, and halves that one.
    """
    low, high, most = 0, 64, min(len(one), len(other))
    while high < most and one[low:high] == other[low:high]:
        low, high = high, 2 * high
    high = min(high, most)
    while low < high:
        middle = (low + high + 1) // 2
        if one[low:middle] == other[low:middle]:
            low = middle
        else:
            high = middle - 1
    return low
