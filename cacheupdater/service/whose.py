"""What a configuration says of a key: which namespace takes it, and how its values are made. Asks nobody.

`cacheupdater explain` and `invalidate` ask it of the file that they read. A running updater asks it of the configuration that it
uses (`explain`), so that `cacheupdater explain` has an answer while the file is refused.
"""

from __future__ import annotations

from heapq import nlargest
from typing import TYPE_CHECKING, NamedTuple

from cacheupdater.core.beginnings import LIKE, likeness
from cacheupdater.core.keyspace import Keyspace
from cacheupdater.service.components import form_in

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence
    from typing import TypeAlias

    from cacheupdater.config.models import LoadSection, NamespaceSection
    from cacheupdater_client.protocol.patterns import Captures

    Namespaces: TypeAlias = Mapping[str, NamespaceSection]

_ALIKE_MAX = 2  # patterns that a sentence names


class Declared(NamedTuple):
    """What the configuration says about a key."""

    namespace: NamespaceSection | None
    """None: no pattern begins like the key, or several do and it fits none of them."""
    captures: Captures | None
    """None: the key begins like the namespace's pattern, but does not fit it."""
    spelled: bool
    """Whether the key holds nothing but what patterns take: printable ASCII without a space."""
    begins: bool
    """Whether it begins like any pattern."""
    full: bytes | None = None
    """The key in Redis, if an application says this key and its framework puts something before it."""
    alike: Sequence[str] = ()
    """The patterns that look most like a key that begins like none."""

    def plain(self) -> dict[str, object]:
        """The same for JSON."""
        if self.namespace is None:
            full = None if self.full is None else self.full.decode()
            return {
                "namespace": None,
                "spelled": self.spelled,
                "begins": self.begins,
                "full": full,
                "alike": list(self.alike),
            }
        pattern, load = self.namespace.pattern, self.namespace.load
        binds = dict(zip(pattern.names, map(_plain, self.captures or ()), strict=False))
        return {
            "namespace": self.namespace.name,
            "pattern": pattern.text,
            "fits": self.captures is not None,
            "spelled": self.spelled,
            "captures": binds,
            "source": load.source,
            "statement": _statement(load),
            "encoding": self.namespace.encoding,
            "form": form_in(self.namespace),
            "foreign": self.namespace.value.foreign,
            "ttl": self.namespace.ttl.base,
        }


def _plain(value: object) -> object:
    return value if isinstance(value, int) else str(value)


def _statement(load: LoadSection) -> str:
    return load.sql or (f"the function {load.python}" if load.python else f"the table {load.table}")


def declared(namespaces: Namespaces, key: bytes) -> Declared:
    """The namespace and the captures of the key, or the patterns that it was perhaps meant for."""
    found = declared_in(_keyspace(namespaces).resolve(key), namespaces, key)
    return found if found.begins or found.full else found._replace(alike=_alike(namespaces, key))


def declared_in(namespace: NamespaceSection | None, namespaces: Namespaces, key: bytes) -> Declared:
    """The same for a running updater, whose keyspace has told the namespace. It names no patterns that look alike: to compare the
    key with thousands of patterns, or to make a keyspace of them, would hold up the updater."""
    captures = None if namespace is None else namespace.pattern.parse(key)
    spelled = all(0x21 <= sign <= 0x7E for sign in key)
    if namespace is not None:
        return Declared(namespace, captures, spelled=spelled, begins=True)
    begins = any(key.startswith(each.pattern.prefix) for each in namespaces.values())
    return Declared(None, None, spelled=spelled, begins=begins, full=full(namespaces, key))


def _alike(namespaces: Namespaces, key: bytes) -> Sequence[str]:
    patterns = [each.pattern for each in namespaces.values()]
    found = nlargest(_ALIKE_MAX, ((likeness(key, each.prefix), each.text) for each in patterns))
    return [text for much, text in found if much >= LIKE]


def full(namespaces: Namespaces, key: bytes) -> bytes | None:
    """The key as it is in Redis, if a namespace's application says it without what its framework puts before it."""
    for each in namespaces.values():
        captures = each.key.parse(key) if each.framework else None
        if captures is not None and each.pattern != each.key:
            return each.pattern.format(captures)
    return None


def nobodys(namespaces: Namespaces, keys: Sequence[bytes]) -> list[bytes]:
    """Those of these keys that fit no namespace's pattern."""
    keyspace = _keyspace(namespaces)
    found = [(key, keyspace.resolve(key)) for key in keys]
    return [key for key, each in found if each is None or each.pattern.parse(key) is None]


def _keyspace(namespaces: Namespaces) -> Keyspace[NamespaceSection]:
    return Keyspace([(each.pattern, each) for each in namespaces.values()])
