"""Refuses features of later versions by name: a configuration that asks for one must not half work.

`load` calls it before the models see the tree. A refused setting is removed, so that it is not reported as unknown too.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import Mapping

    from cacheupdater.config.document import Document, Tree
    from cacheupdater.config.problems import Path

_TOP = {"include": "is not part of this version; write everything into one file"}
_NAMESPACE = {
    "priority": "is not part of this version; remove it (misses already go before changes, changes before reads)",
    "weight": "is not part of this version; remove it, and limit a costly namespace with quota",
}


def refuse_later(document: Document) -> None:
    """Notes and removes every setting that this version does not know yet."""
    tree = document.tree
    _take(document, tree, (), _TOP)
    namespaces = _section(tree, "namespaces")
    homes: list[tuple[Path, dict[str, Tree]]] = [
        (("namespaces", name), _section(namespaces, name)) for name in namespaces
    ]
    for path, home in [(("defaults",), _section(tree, "defaults")), *homes]:
        _take(document, home, path, _NAMESPACE)


def _section(tree: Mapping[str, Tree], name: str) -> dict[str, Tree]:
    found = tree.get(name)
    return found if isinstance(found, dict) else {}


def _take(document: Document, home: dict[str, Tree], path: Path, features: Mapping[str, str]) -> None:
    for name in features.keys() & home.keys():
        value = home.pop(name)
        said = f"{value} " if isinstance(value, str) and value.isalpha() else ""
        document.refuse((*path, name), said + features[name])
