"""Which namespace a key belongs to, of all that a configuration declares.

The service builds one `Keyspace` of all patterns, which lives as long as the process. The engine asks it about keys that
have no seat. Where a prefix alone decides, nothing else is looked at: `patterns` parses a key in full when its unit is
built. Nothing here does I/O or keeps state between calls.
"""

from __future__ import annotations

from bisect import bisect_right
from collections.abc import Hashable, Sequence
from itertools import repeat
from typing import Generic, NamedTuple, TypeVar

from cacheupdater.core.siblings import Siblings
from cacheupdater.errors import Misconfigured
from cacheupdater_client.protocol.patterns import Pattern, overlaps

T = TypeVar("T", bound=Hashable)


class _Node(NamedTuple, Generic[T]):
    """One literal prefix."""

    prefix: bytes
    parent: int  # node of the longest proper prefix of this one; 0 is the root, which matches nothing
    own: Siblings[T]  # the patterns of this prefix, then the parent's: the first that parses wins
    closed: bool  # one pattern and no parent: the prefix alone decides


class Keyspace(Generic[T]):
    """All patterns of a configuration, each with what it stands for.

    The longest literal prefix wins, then the pattern with more literal text, then the one declared first.
    A key whose prefix leaves one pattern only is resolved by that prefix alone.
    """

    def __init__(self, pairs: Sequence[tuple[Pattern, T]]) -> None:
        self.values = [value for _, value in pairs]  # as declared
        by_prefix: dict[bytes, list[tuple[Pattern, T]]] = {}
        for pattern, value in pairs:
            by_prefix.setdefault(pattern.prefix, []).append((pattern, value))
        self._sorted = sorted(by_prefix)
        self._nodes = _index(
            [(prefix, Siblings(_by_precedence(by_prefix[prefix]))) for prefix in self._sorted]
        )
        self._closed = [node.prefix if node.closed else _NEVER for node in self._nodes]

    @property
    def prefixes(self) -> list[bytes]:
        """The shortest list of prefixes such that every declared key begins with one of them; for the senders of hints."""
        return [node.prefix for node in self._nodes[1:] if node.parent == 0]

    def resolve(self, key: bytes) -> T | None:
        """What this key belongs to; None if it begins like no pattern, or fits none of several that begin like it."""
        at = bisect_right(self._sorted, key)
        return self._nodes[at].own.first if key.startswith(self._closed[at]) else self._search(key, at)

    def _search(self, key: bytes, at: int) -> T | None:
        """The same for a key whose place among the prefixes is known."""
        nodes = self._nodes
        node = nodes[at]
        while not key.startswith(node.prefix):
            node = nodes[node.parent]
        if node.closed:
            return node.own.first
        while node is not nodes[0]:
            value = node.own.find(key)
            if value is not None:
                return value
            node = nodes[node.parent]
        return None

    def resolve_many(self, keys: Sequence[bytes]) -> tuple[dict[T, list[bytes]], list[bytes]]:
        """Groups a batch by what its keys belong to, keeping their order. The keys of the second list belong to nobody."""
        if not keys:
            return {}, []
        # often all keys are of one namespace; if not, the first and the last mostly show it
        at = bisect_right(self._sorted, keys[0])
        if bisect_right(self._sorted, keys[-1]) == at and self._holds(at, min(keys), max(keys)):
            return {self._nodes[at].own.first: list(keys)}, []
        groups: dict[int, list[bytes]] = {}  # by node, for keys that their prefix alone decides
        known: dict[T, list[bytes]] = {}
        unknown: list[bytes] = []
        prefix: bytes | tuple[bytes, ...] = _NEVER
        before, add = -1, unknown.append
        for key, at in zip(keys, map(bisect_right, repeat(self._sorted), keys), strict=True):
            if at != before:  # keys come in runs of one namespace
                before, prefix = at, self._closed[at]
                group = groups.get(at)
                if group is None:
                    group = groups[at] = []
                add = group.append
            if key.startswith(prefix):
                add(key)
                continue
            value = self._search(key, at)
            if value is None:
                unknown.append(key)
            else:
                known.setdefault(value, []).append(key)
        for at, group in groups.items():
            if group:
                value = self._nodes[at].own.first
                others = known.setdefault(value, group)
                if others is not group:
                    known[value] = _merged(keys, others, group)
        return known, unknown

    def _holds(self, at: int, first: bytes, last: bytes) -> bool:
        """Whether this node alone decides on all keys from `first` to `last`: they begin as both do, and lie between them."""
        prefix = self._closed[at]
        both = first.startswith(prefix) and last.startswith(prefix)
        return both and bisect_right(self._sorted, first) == at == bisect_right(self._sorted, last)


def _merged(keys: Sequence[bytes], some: list[bytes], others: list[bytes]) -> list[bytes]:
    """Both lists as one, in the order in which their keys came."""
    wanted = {*some, *others}
    return [key for key in keys if key in wanted]


_NEVER: tuple[bytes, ...] = ()  # what no key begins with, whatever its bytes


def _index(prefixes: list[tuple[bytes, Siblings[T]]]) -> list[_Node[T]]:
    """Nodes in the order of their prefixes, so that bisect finds the one that a key may belong to."""
    nodes: list[_Node[T]] = [_Node(b"", 0, Siblings(()), closed=False)]
    for at, (prefix, own) in enumerate(prefixes, start=1):
        parent = at - 1
        while not prefix.startswith(nodes[parent].prefix):
            parent = nodes[parent].parent
        nodes.append(_Node(prefix, parent, own, closed=len(own) == 1 and not parent))
    return nodes


def _by_precedence(siblings: list[tuple[Pattern, T]]) -> list[tuple[Pattern, T]]:
    """Patterns of one prefix, the most literal first; refuses two that take the same keys."""
    alike: dict[tuple[bytes, ...], list[Pattern]] = {}
    for pattern, _ in siblings:
        others = alike.setdefault(pattern.literals, [])  # no other pattern can overlap
        for other in others:
            if overlaps(pattern, other):
                raise Misconfigured(f"key patterns {other.text!r} and {pattern.text!r} take the same keys")
        others.append(pattern)
    return sorted(siblings, key=lambda pair: -sum(map(len, pair[0].literals)))
