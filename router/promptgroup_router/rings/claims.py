"""Looks up declared prompts by the start of a request's text. Does no I/O and reads no clock.

The declared texts of a model form one tree for each tool list, branching at the characters in which they differ
(a PATRICIA tree: Morrison, 1968). A lookup follows one path: at a branch it reads one character of the request, and at
the end it compares the request with one declared text. The cost is that of one comparison, plus one step for each
declared text that the request begins with or branches off from, however many texts are declared.

Of a declared text that has not been read, only the length and the hash are available. The request is hashed once, at
most up to the longest of these lengths, and the hash is compared at each length.

A prefix that has messages behind its system text is indexed by their number and its hash. It is longer than any prefix
without messages that the same request begins with, since it contains the request's whole system text.

An index is immutable. The next index shares all parts with it that added and removed claims do not affect: of a tree,
only the nodes on their paths are copied (Driscoll, Sarnak, Sleator and Tarjan, 1989).
"""

import heapq
from collections.abc import Callable, Generator, Iterable, Iterator, Sequence
from typing import Generic, NamedTuple, TypeVar

from promptgroup_contract.fingerprint import Fingerprint, hashes_with_messages, prefix_hashes
from promptgroup_router.base.steps import at_once
from promptgroup_router.rings.age import Age

MOST_LENGTHS = 256
"""Most lengths of unread texts at which a request is hashed, 1 µs each. If there are more, the longest are used: the
others match once their text has been read, which is within seconds."""
MOST_COUNTS = 16
"""Most numbers of declared messages at which a request is hashed; if there are more, the greatest are used."""
LONGEST = 8
"""Declared texts per tool list that `longest` returns: searching a request for the end of one takes 2 µs."""

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
    """The tools in canonical form; empty without tools, and while the prompt has not been read."""
    messages: int = 0
    """Number of messages behind the system text that belong to the prefix."""
    age: tuple[Age, str] = ((True, ""), "")
    """Sort key for the order in which groups claim prefixes; the oldest group has the least."""


class Alike(NamedTuple, Generic[_T]):
    """A declared prefix, and the number of its characters that a request's text begins with."""

    claim: Claim[_T]
    characters: int


class _Claimants(Generic[_T]):
    """The claims on one prefix, one per namespace."""

    __slots__ = ("by_namespace", "oldest", "owner")

    def __init__(self, by_namespace: dict[str, Claim[_T]], owner: object) -> None:
        self.by_namespace = by_namespace
        self.oldest = min(by_namespace.values(), key=_age)
        self.owner = owner
        """The build that may change it."""

    def put(self, claim: Claim[_T], owner: object) -> "_Claimants[_T]":
        """Return the claimants with this claim for its namespace."""
        current = self.by_namespace.get(claim.namespace)
        if self.owner is not owner:
            return _Claimants({**self.by_namespace, claim.namespace: claim}, owner)
        self.by_namespace[claim.namespace] = claim
        if current is self.oldest:
            self.oldest = min(self.by_namespace.values(), key=_age)
        elif claim.age < self.oldest.age:
            self.oldest = claim
        return self

    def without(self, claim: Claim[_T], owner: object) -> "_Claimants[_T] | None":
        """Return the claimants without this claim; None if none is left."""
        if self.by_namespace.get(claim.namespace) is not claim:
            return self
        left = {namespace: item for namespace, item in self.by_namespace.items() if item is not claim}
        return _Claimants(left, owner) if left else None


def _age(claim: Claim[_T]) -> tuple[Age, str]:
    return claim.age


def _put(current: _Claimants[_T] | None, claim: Claim[_T], owner: object) -> _Claimants[_T]:
    return current.put(claim, owner) if current is not None else _Claimants({claim.namespace: claim}, owner)


class _Node(Generic[_T]):
    """A point at which declared texts end or differ."""

    __slots__ = ("children", "claimants", "depth", "owner", "shortest", "text")

    def __init__(self, depth: int, text: str, owner: object) -> None:
        self.depth = depth
        """Number of characters that all texts below have in common."""
        self.text = text
        """One of the texts below; the text that ends here, if there is one."""
        self.claimants: _Claimants[_T] | None = None
        """The claims on the text that ends here."""
        self.children: dict[str, _Node[_T]] = {}
        """First character that differs → node of the texts with it."""
        self.shortest: Claim[_T] | None = None
        """The shortest of the texts below."""
        self.owner = owner
        """The build that may change it."""

    def owned(self, owner: object) -> "_Node[_T]":
        """Return this node, or a copy that the build may change."""
        if self.owner is owner:
            return self
        made: _Node[_T] = _Node(self.depth, self.text, owner)
        made.claimants, made.children, made.shortest = self.claimants, dict(self.children), self.shortest
        return made

    def renew(self) -> None:
        """Recompute `text` and `shortest` after a change below."""
        below = [child.shortest for child in self.children.values() if child.shortest is not None]
        if self.claimants is not None:
            below.append(self.claimants.oldest)
        elif self.children:
            self.text = next(iter(self.children.values())).text
        self.shortest = min(below, key=lambda claim: len(claim.system or ""), default=None)


_Hashed = dict[int, dict[Fingerprint, _Claimants[_T]]]
"""Length of a text, or number of messages → hash → the claims on the prefix with that hash."""
_Key = tuple[str, Fingerprint]
"""Namespace and fingerprint."""


class Claims(Generic[_T]):
    """The declared prefixes of a model.

    Several namespaces may claim one prefix, each for its own requests; within a namespace the first claim is used.
    """

    def __init__(self, claims: Iterable[Claim[_T]]) -> None:
        """Index all claims in one call, each prefix for the first claim of its namespace: see `renewed`."""
        self.declared: dict[_Key, Claim[_T]] = {}
        """Namespace and fingerprint → claim."""
        self._trees: dict[str, _Node[_T]] = {}
        """Tools → tree of the texts declared with them."""
        self._longest: dict[str, tuple[Claim[_T], ...]] = {}
        self._unread: _Hashed[_T] = {}
        self._with_messages: _Hashed[_T] = {}
        self._lengths: list[int] = []
        self._counts: list[int] = []
        self._own: set[int] = set()
        """Lengths, and negated numbers of messages, whose dict of hashes is not shared with another index."""
        desired: dict[_Key, Claim[_T]] = {}
        for claim in claims:
            desired.setdefault((claim.namespace, claim.fingerprint), claim)
        at_once(self._change(desired, {}, object()))

    def renewed(self, desired: dict[_Key, Claim[_T]]) -> "Generator[None, None, Claims[_T]]":
        """Return the index of these claims, built in steps of one added or removed claim; this one if none changes."""
        if len(desired) == len(self.declared):
            same = True
            for key, claim in desired.items():
                if self.declared.get(key) is not claim:
                    same = False
                    break
            if same:
                return self
        made: Claims[_T] = Claims(())
        made._trees, made._longest = dict(self._trees), dict(self._longest)
        made._unread, made._with_messages = dict(self._unread), dict(self._with_messages)
        yield from made._change(desired, self.declared, object())
        return made

    def match(
        self, tools: str, text: str, namespace: str = "", first_messages: Callable[[int], str | None] | None = None
    ) -> _T | None:
        """Return the declared prefix that a request belongs to, or None.

        Args:
            tools: the request's tools in canonical form.
            text: its system text.
            namespace: the namespace of the request. If it is empty, that of the oldest matching claim is used: a
                younger claim of another namespace takes no requests from an older one.
            first_messages: returns the given number of the request's first messages in canonical form, None if they
                cannot be declared.

        Returns:
            The longest match in that namespace.
        """
        matches = self._matches(tools, text)
        if self._counts and first_messages is not None:
            matches = self._matches_with_messages(tools, text, first_messages) + matches
        if not matches:
            return None
        if not namespace:
            if len(matches) == 1:
                return matches[0].oldest.entry
            namespace = min([item.oldest for item in matches], key=_age).namespace
        for claimants in matches:
            if namespace in claimants.by_namespace:
                return claimants.by_namespace[namespace].entry
        return None

    def alike(self, tools: str, text: str) -> Iterator[Alike[_T]]:
        """Yield declared prefixes that begin like a text, those with the longest common beginning first.

        Of several with an equally long one, the shortest prefix is yielded. All have the same tools, and were read.
        """
        root = self._trees.get(tools)
        if root is None:
            return
        path = _path(root, text)
        shared = common_length(path[-1].text, text)
        before: Claim[_T] | None = None
        for number in range(len(path) - 1, -1, -1):
            node = path[number]
            # below a node deeper than the first difference, no common beginning is longer than at the node above
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
            path = [node for node in reversed(_path(root, text)) if node.claimants is not None]
            # usually the text begins with the longest of them, and therefore with all
            if path and not text.startswith(path[0].text):
                shared = common_length(path[0].text, text)
                path = [node for node in path if node.depth <= shared]
        claimantses = [node.claimants for node in path if node.claimants is not None]
        if not self._lengths:
            return claimantses
        sized = [(item.oldest.system_bytes, item) for item in claimantses]
        for length, fingerprint in prefix_hashes(tools, text.encode(), self._lengths):
            claimants = self._unread[length].get(fingerprint)
            if claimants is not None:
                sized.append((length, claimants))
        return [claimants for _, claimants in sorted(sized, key=lambda item: -item[0])]

    def _matches_with_messages(
        self, tools: str, text: str, first_messages: Callable[[int], str | None]
    ) -> "list[_Claimants[_T]]":
        """Return the claims on prefixes with messages that a request begins with, the longest first."""
        starts = [(count, start) for count in self._counts if (start := first_messages(count)) is not None]
        if not starts:
            return []
        hashes = hashes_with_messages(tools, text.encode(), [start for _, start in starts])
        result = (
            (self._with_messages[count].get(fingerprint))
            for (count, _), fingerprint in zip(starts, hashes, strict=True)
        )
        return [claimants for claimants in result if claimants is not None]

    # --- Added and removed claims -----------------------------------------------------------------------------------

    def _change(
        self, desired: dict[_Key, Claim[_T]], current: dict[_Key, Claim[_T]], owner: object
    ) -> Generator[None, None, None]:
        """Turn this index, which contains the claims `known`, into that of the claims `desired`."""
        touched: set[str] = set()
        for key, claim in current.items():
            now = desired.get(key)
            if now is not claim and (now is None or _place(now) != _place(claim)):
                self._note(touched, claim)
                self._drop(claim, owner)
                yield
        for key, claim in desired.items():
            before = current.get(key)
            if before is not claim:
                if before is not None:
                    self._note(touched, before)
                self._note(touched, claim)
                self._add(claim, owner)
                yield
        for tools in touched:
            self._longest[tools] = yield from _longest(self._trees.get(tools))
        self.declared = desired
        self._own = set()
        self._lengths = sorted(self._unread)[-MOST_LENGTHS:]
        self._counts = sorted(self._with_messages, reverse=True)[:MOST_COUNTS]

    def _note(self, touched: set[str], claim: Claim[_T]) -> None:
        """Record the tools of a claim if adding or removing it may change their longest texts."""
        if claim.messages or claim.system is None:
            return
        current = self._longest.get(claim.tools, ())
        if len(current) < LONGEST or len(claim.system) >= len(current[-1].system or ""):
            touched.add(claim.tools)

    def _add(self, claim: Claim[_T], owner: object) -> None:
        hashed = self._hashed(claim)
        if hashed is not None:
            hashed[claim.fingerprint] = _put(hashed.get(claim.fingerprint), claim, owner)
            return
        text = claim.system or ""
        root = self._trees.get(claim.tools) or _Node(0, "", owner)
        path = _path(root, text)
        shared = common_length(path[-1].text, text)
        below = next((node for node in path if node.depth > shared), None)
        path = [node for node in path if node.depth <= shared]
        path = self._owned(claim.tools, path, owner)
        at = path[-1]
        if below is not None and at.depth < shared:
            between: _Node[_T] = _Node(shared, below.text, owner)
            between.children[below.text[shared]] = below
            at.children[text[at.depth]] = at = between
            path.append(at)
        if at.depth < len(text):
            leaf: _Node[_T] = _Node(len(text), text, owner)
            at.children[text[at.depth]] = at = leaf
            path.append(at)
        at.claimants, at.text = _put(at.claimants, claim, owner), text
        _renew(path, text)

    def _drop(self, claim: Claim[_T], owner: object) -> None:
        hashed = self._hashed(claim)
        if hashed is not None:
            left = hashed[claim.fingerprint].without(claim, owner)
            if left is not None:
                hashed[claim.fingerprint] = left
            else:
                del hashed[claim.fingerprint]
                if not hashed:
                    (self._with_messages if claim.messages else self._unread).pop(claim.messages or claim.system_bytes)
            return
        text = claim.system or ""
        path = [node for node in _path(self._trees[claim.tools], text) if node.depth <= len(text)]
        path = self._owned(claim.tools, path, owner)
        at = path[-1]
        if at.claimants is not None:
            at.claimants = at.claimants.without(claim, owner)
        # remove nodes at which no text ends and none branches off
        while len(path) > 1 and at.claimants is None and len(at.children) < 2:
            path.pop()
            above = path[-1]
            if at.children:
                [above.children[text[above.depth]]] = at.children.values()
            else:
                del above.children[text[above.depth]]
            at = above
        if at.depth == 0 and at.claimants is None and not at.children:
            del self._trees[claim.tools]
            return
        _renew(path, text)

    def _owned(self, tools: str, path: "list[_Node[_T]]", owner: object) -> "list[_Node[_T]]":
        """Return the nodes of a path from the root, replaced in the tree by copies that the build may change."""
        made: list[_Node[_T]] = []
        for node in path:
            mine = node.owned(owner)
            if mine is not node or not made:
                if made:
                    made[-1].children[mine.text[made[-1].depth]] = mine
                else:
                    self._trees[tools] = mine
            made.append(mine)
        return made

    def _hashed(self, claim: Claim[_T]) -> "dict[Fingerprint, _Claimants[_T]] | None":
        """Return the claims among which this one is indexed by its hash; None if it is in a tree, by its text."""
        if not claim.messages and claim.system is not None:
            return None
        by_hash = self._with_messages if claim.messages else self._unread
        number = claim.messages or claim.system_bytes
        own = -claim.messages or claim.system_bytes
        if own not in self._own:
            self._own.add(own)
            by_hash[number] = dict(by_hash.get(number, {}))
        return by_hash.setdefault(number, {})


def _place(claim: Claim[_T]) -> tuple[int, str | None, str, int]:
    """Return the values that, with the fingerprint, determine the position of a claim in the index."""
    return claim.messages, claim.system, claim.tools, claim.system_bytes


def _renew(path: list[_Node[_T]], text: str) -> None:
    """Recompute the nodes of a path from its end, as far as they change; `text` is the one added or removed."""
    for node in reversed(path):
        before = node.shortest
        node.renew()
        if node.shortest is before and node.text is not text and node is not path[-1]:
            return


def _longest(root: _Node[_T] | None) -> Generator[None, None, tuple[Claim[_T], ...]]:
    """Return the claims on the longest texts of a tree, in steps of a node."""
    result: list[tuple[int, int, Claim[_T]]] = []
    left = [root] if root is not None else []
    number = 0
    while left:
        node = left.pop()
        left += node.children.values()
        if node.claimants is not None:
            number += 1
            item = node.depth, number, node.claimants.oldest
            if len(result) < LONGEST:
                heapq.heappush(result, item)
            elif item[0] > result[0][0]:
                heapq.heapreplace(result, item)
        yield
    return tuple(claim for _, _, claim in sorted(result, key=lambda item: -item[0]))


def _path(root: _Node[_T], text: str) -> list[_Node[_T]]:
    """Return the nodes on the path of a text. Only the characters at the branches are compared."""
    node, path, length = root, [root], len(text)
    while node.depth < length:
        child = node.children.get(text[node.depth])
        if child is None:
            break
        path.append(child)
        node = child
    return path


def common_length(one: str, other: str) -> int:
    """Return the number of characters that both texts begin with.

    Compares windows of doubling size until one contains a difference, and bisects that one.
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
