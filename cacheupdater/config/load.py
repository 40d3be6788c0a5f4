"""From a file and an environment to a `Config`, or to every reason why not.

`load_config` is the only reader of a configuration file. It runs once at the start of `run` and `check`: read the
document, refuse what later versions will bring, type each part by its model, merge the defaults, check what the parts
mean together. Parts are typed one by one, so that a mistake in one does not hide those of another.
"""

from __future__ import annotations

import math
from pathlib import Path as FilePath
from typing import TYPE_CHECKING, TypeAlias, TypeVar

from pydantic import ValidationError

from cacheupdater.config import checks, later
from cacheupdater.config.addresses import CONVENTIONAL
from cacheupdater.config.clear_text import warn_of_clear_text
from cacheupdater.config.explain import explain
from cacheupdater.config.idle import warn_of_idle
from cacheupdater.config.models import (
    BUILT_IN,
    DefaultsSection,
    LoadSection,
    NamespaceSection,
    RefreshSection,
    Section,
    SourceSection,
    TopSection,
)
from cacheupdater.config.queues import queue_of
from cacheupdater.config.reader import read_document
from cacheupdater.config.settings import (
    Config,
    Encryption,
    Load,
    MemoryQueueConfig,
    NamespaceConfig,
    PythonLoad,
    QuotaConfig,
    SourceConfig,
    SqlLoad,
    Stamp,
    TableLoad,
)
from cacheupdater.core.statements import dialect_of

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Mapping

    from cacheupdater.config.choices import Policy
    from cacheupdater.config.document import Document, Tree
    from cacheupdater.config.problems import Path
    from cacheupdater.core.statements import Dialect
    from cacheupdater_client.protocol.patterns import Pattern

S = TypeVar("S", bound=Section)
T = TypeVar("T")


Further: TypeAlias = "Callable[[Config], Iterable[tuple[Path, str]]]"
"""Finds what is wrong with parts that the configuration itself does not know."""


def load_config(
    path: str | FilePath, environ: Mapping[str, str], *, further: Further | None = None
) -> Config:
    """Raises ConfigErrors with everything that is wrong; `further` is asked where nothing else is."""
    document = read_document(FilePath(path), environ)
    later.refuse_later(document)
    parts = _Parts(document)
    config = parts.config()
    if config and further and not document.problems:
        for place, problem in further(config):
            document.refuse(place, problem)
    document.raise_if_refused()
    if config is None:
        raise AssertionError("a part without a value has noted no problem")
    return config


class _Parts:
    """The sections of one document, typed and merged as far as they are well formed."""

    def __init__(self, document: Document) -> None:
        self._document = document
        tree = document.tree
        apart = ("sources", "defaults", "namespaces")
        self._top = self._typed(
            TopSection, {key: value for key, value in tree.items() if key not in apart}, ()
        )
        self._defaults = self._typed(DefaultsSection, tree.get("defaults", {}), ("defaults",))
        self._sources = self._each(SourceSection, "sources")
        self._namespaces = self._each(NamespaceSection, "namespaces")

    def config(self) -> Config | None:
        """None when something was refused."""
        if self._top:
            checks.check_top(self._document, self._top)
        namespaces = self._merged()
        if self._top is None:
            return None
        top = self._top
        sources = {
            name: _source(name, one, checks.encryption(self._document, name, one))
            for name, one in self._sources.items()
            if one
        }
        queue = queue_of(top.queue.url, top.queue.partitions)
        if not self._document.problems:
            warn_of_idle(self._document, sources, namespaces)
            warn_of_clear_text(self._document, sources, top.cache.url, queue)
        default = (CONVENTIONAL,) if isinstance(queue, MemoryQueueConfig) else ()
        return Config(
            listen=default if top.listen is None else top.listen,
            queue=queue,
            cache=top.cache.url,
            admin=top.admin.listen if top.admin else None,
            admin_token=checks.token_of(self._document, top.admin) if top.admin else None,
            state=top.state,
            fleet=top.fleet,
            log_keys=top.log_keys,
            sources=sources,
            namespaces=namespaces,
            warnings=tuple(self._document.warnings),
        )

    def _typed(self, model: type[S], tree: Tree, path: Path) -> S | None:
        try:
            return model.model_validate(tree)
        except ValidationError as e:
            explain(self._document, model, e, path)
            return None

    def _each(self, model: type[S], section: str) -> dict[str, S | None]:
        """A section whose keys are names that the user chose; None for a malformed one."""
        tree = self._document.tree.get(section, {})
        if not self._document.names(section):
            self._document.refuse((section,), "must declare at least one, as `name: {…}`")
        if not isinstance(tree, dict):
            return {}
        checks.check_names(self._document, section, list(tree))
        return {name: self._typed(model, one, (section, name)) for name, one in tree.items()}

    def _merged(self) -> dict[str, NamespaceConfig]:
        document = self._document
        for name, source in self._sources.items():
            if source:
                checks.check_source(document, name, source)
        if self._defaults:
            refresh = self._defaults.refresh
            checks.check_refresh(document, ("defaults",), refresh, _policy(refresh, BUILT_IN.refresh))
            checks.check_value(document, ("defaults",), self._defaults.value)
        patterns: dict[str, Pattern] = {}
        merged: dict[str, NamespaceConfig] = {}
        for name, one in self._namespaces.items():
            if one is None:
                continue
            checks.check_value(document, ("namespaces", name), one.value)
            self._check_load(name, one.load)
            pattern = checks.compiled(document, name, one, self._dialect(one.load.source))
            if pattern and self._defaults:
                patterns[name] = pattern
                merged[name] = _namespace(name, one, self._defaults, pattern)
                checks.check_refresh(document, ("namespaces", name), one.refresh, merged[name].policy)
                checks.check_merged(document, merged[name])
        checks.check_overlap(document, patterns)
        return merged

    def _dialect(self, name: str) -> Dialect:
        """PostgreSQL's where the source is not well formed; whether it is, is said elsewhere."""
        source = self._sources.get(name)
        return dialect_of(source.url.scheme.partition("+")[0] if source and source.url else "postgresql")

    def _check_load(self, name: str, load: LoadSection) -> None:
        checks.check_load(self._document, name, load, self._document.names("sources"))
        source = self._sources.get(load.source)
        if source:
            checks.check_source_url(self._document, name, load, source)


def _source(name: str, one: SourceSection, encryption: Encryption) -> SourceConfig:
    return SourceConfig(
        name=name,
        url=one.url,
        budget=one.budget,
        db_time=one.db_time,
        burst=one.burst,
        freshness_target=one.freshness_target,
        least_gain=one.least_gain,
        pool_size=one.pool_size,
        statement_timeout=one.statement_timeout,
        encryption=encryption,
    )


def _policy(*levels: RefreshSection) -> Policy:
    """The first level that says one decides; an interval alone means fixed."""
    said = (level for level in levels if level.policy or level.every is not None)
    return next(level.policy or "fixed" for level in said)


def _namespace(
    name: str, own: NamespaceSection, defaults: DefaultsSection, pattern: Pattern
) -> NamespaceConfig:
    """Field by field: what the namespace says, else the defaults, else what is built in."""

    def said(field: Callable[[DefaultsSection], T | None]) -> T:
        found = maybe(field)
        if found is None:
            raise AssertionError("every setting asked for has a built-in value")
        return found

    def maybe(field: Callable[[DefaultsSection], T | None]) -> T | None:
        return next((value for value in map(field, (own, defaults, BUILT_IN)) if value is not None), None)

    quota = maybe(lambda one: one.quota)
    return NamespaceConfig(
        name=name,
        pattern=pattern,
        load=_load(own.load),
        encoding=said(lambda one: one.value.encoding),
        columns=maybe(lambda one: one.value.columns),
        numbers=said(lambda one: one.value.numbers),
        times=said(lambda one: one.value.times),
        foreign=said(lambda one: one.value.foreign_said),
        ttl=said(lambda one: one.ttl.base),
        ttl_jitter=said(lambda one: one.ttl.jitter),
        policy=_policy(own.refresh, defaults.refresh, BUILT_IN.refresh),
        every=said(lambda one: one.refresh.every),
        worth=said(lambda one: one.refresh.worth),
        max_age=maybe(lambda one: one.refresh.max_age),
        missing_ttl=said(lambda one: one.missing.ttl),
        quota=QuotaConfig(quota.rate, quota.burst or max(1, math.ceil(quota.rate))) if quota else None,
        max_backlog=said(lambda one: one.max_backlog),
    )


def _load(load: LoadSection) -> Load:
    if load.table:
        return TableLoad(load.source, load.table, _stamp(load))
    if load.python:
        return PythonLoad(load.source, load.python)
    return SqlLoad(load.source, load.sql or "", load.rows or "one", _stamp(load))


def _stamp(load: LoadSection) -> Stamp | None:
    if load.version_column:
        return Stamp(load.version_column, "version")
    return Stamp(load.updated_at, "age") if load.updated_at else None
