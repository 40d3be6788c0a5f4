"""Warns of settings that are valid but have no effect, because of other settings. Each warning has its line.

`load` calls it for a configuration without mistakes. It warns only where the author of a setting expects an effect.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from cacheupdater.core.outage import IN_A_ROW

if TYPE_CHECKING:
    from collections.abc import Iterable, Mapping, Sequence

    from cacheupdater.config.document import Document
    from cacheupdater.config.models import NamespaceSection, SourceSection

_FIXED = "is for policy: price, and every namespace {}has a fixed interval"
_STAMPS = {"version": "version_column", "age": "updated_at"}


def warn_of_idle(
    document: Document,
    sources: Mapping[str, SourceSection],
    namespaces: Mapping[str, NamespaceSection],
) -> None:
    """Adds the warnings to the document."""
    for name, source in sources.items():
        _warn_of_source(document, source, [each for each in namespaces.values() if each.load.source == name])
    for name, one in namespaces.items():
        if one.refresh.policy == "fixed" and one.load.stamp:
            document.warn(
                ("namespaces", name, "load", _STAMPS[one.load.stamp.kind]),
                "has no effect: it tells policy: price what has changed, and here the interval is fixed",
            )
        _warn_of_fail_safe(document, one, sources[one.load.source])
    if ("state",) in document.values and not _priced(namespaces.values()):
        document.warn(("state",), f"has no effect: it {_FIXED.format('')}")


def _warn_of_source(document: Document, source: SourceSection, mine: Sequence[NamespaceSection]) -> None:
    if not mine:
        document.warn(("sources", source.name), "has no effect: no namespace loads from it")
    elif not _priced(mine):
        for setting in ("freshness_target", "least_gain"):
            if ("sources", source.name, setting) in document.values:
                document.warn(
                    ("sources", source.name, setting), f"has no effect: it {_FIXED.format('of the source ')}"
                )


def _warn_of_fail_safe(document: Document, one: NamespaceSection, source: SourceSection) -> None:
    """A value must live until its source is known to fail: two loads of a source that hangs end by their timeouts."""
    least = one.ttl.base * (1 - one.ttl.jitter)
    if one.fail_safe is None or least > IN_A_ROW * source.statement_timeout:
        return
    document.warn(
        ("namespaces", one.name, "fail_safe"),
        f"comes too late where the source hangs: a value expires {least:g}s after its load,"
        f" and {IN_A_ROW} loads take up to {IN_A_ROW * source.statement_timeout:g}s to time out",
    )


def _priced(namespaces: Iterable[NamespaceSection]) -> bool:
    return any(each.refresh.policy == "price" for each in namespaces)
