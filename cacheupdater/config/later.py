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


def refuse_later(document: Document) -> None:
    """Notes and removes every setting that this version does not know yet."""
    _take(document, document.tree, (), _TOP)


def _take(document: Document, home: dict[str, Tree], path: Path, features: Mapping[str, str]) -> None:
    for name in features.keys() & home.keys():
        value = home.pop(name)
        said = f"{value} " if isinstance(value, str) and value.isalpha() else ""
        document.refuse((*path, name), said + features[name])
