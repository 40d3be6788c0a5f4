"""Puts `defaults:` under a namespace: both are trees of text, before the models give them types.

`load` calls it for each namespace. The namespace's own settings win, field by field; `quota` and `fail_safe` count as a whole.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from cacheupdater.config.document import Tree

_BY_FIELD = ("ttl", "value", "refresh", "missing", "max_backlog")
_SPELLINGS = {"encoding", "numbers", "times"}


def merged(own: Tree | None, defaults: Tree | None) -> dict[str, Tree]:
    """The own settings with the defaults under them. The models must have accepted both sections."""
    first, second = plain(own), plain(defaults)
    if "framework" in first:  # it says how values are spelled; those in `defaults` are for other namespaces
        value = _of(second, "value")
        second["value"] = {name: said for name, said in value.items() if name not in _SPELLINGS}
    return {**second, **first, **{name: {**_of(second, name), **_of(first, name)} for name in _BY_FIELD}}


def plain(section: Tree | None) -> dict[str, Tree]:
    """The section with one spelling for each setting, so that two sections can be merged."""
    said = dict(section) if isinstance(section, dict) else {}
    value, refresh, ttl = _of(said, "value"), _of(said, "refresh"), said.get("ttl", {})
    if "wrong_type" in value:
        value["foreign"] = "replace" if value.pop("wrong_type") == "replace" else "keep"
    if "every" in refresh:
        refresh.setdefault("policy", "fixed")  # an interval alone means a fixed one
    backlog = said.get("max_backlog", {})
    return {
        **said,
        "value": value,
        "refresh": refresh,
        "ttl": {"base": ttl} if isinstance(ttl, str) else ttl,
        "max_backlog": {"keys": backlog} if isinstance(backlog, str) else backlog,
    }


def _of(section: dict[str, Tree], name: str) -> dict[str, Tree]:
    part = section.get(name)
    return dict(part) if isinstance(part, dict) else {}
