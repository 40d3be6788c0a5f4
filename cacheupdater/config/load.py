"""Makes a `Config` from a file and an environment, or names everything that is wrong with them.

`load_config` runs at the start of a command, and at a reload; `load_needed` does for a command that needs a few sections.
Both read the document, refuse features of later versions, type each part by its model, merge the defaults, and check the
parts together. Parts are typed one by one, so that a mistake in one does not hide those of another.
"""

from __future__ import annotations

from pathlib import Path as FilePath
from typing import TYPE_CHECKING, TypeAlias, TypeVar

from pydantic import ValidationError

from cacheupdater.config import checks, later
from cacheupdater.config.addresses import CONVENTIONAL
from cacheupdater.config.clear_text import warn_of_clear_text
from cacheupdater.config.declared import put_under
from cacheupdater.config.document import Document
from cacheupdater.config.explain import explain
from cacheupdater.config.feed_checks import check_feeds
from cacheupdater.config.idle import warn_of_idle
from cacheupdater.config.merge import merged, plain
from cacheupdater.config.models import (
    DefaultsSection,
    LoadSection,
    Named,
    NamespaceSection,
    SourceSection,
    TopSection,
)
from cacheupdater.config.partly import Partly, partly
from cacheupdater.config.queues import MemoryQueueConfig, queue_of
from cacheupdater.config.reader import read_document
from cacheupdater.config.section import Section
from cacheupdater.config.settings import Config
from cacheupdater.core.statements import dialect_of

if TYPE_CHECKING:
    from collections.abc import Callable, Collection, Iterable, Mapping

    from cacheupdater.config.declared import Application
    from cacheupdater.config.document import Tree
    from cacheupdater.config.partly import SectionName
    from cacheupdater.config.problems import Path
    from cacheupdater.core.statements import Dialect
    from cacheupdater_client.protocol.definitions import Definition

S = TypeVar("S", bound=Section)
N = TypeVar("N", bound=Named)


Further: TypeAlias = "Callable[[Config], Iterable[tuple[Path, str]]]"
"""Finds problems that the configuration package cannot see, such as a port that is taken."""


def load_config(
    path: str | FilePath | None,
    environ: Mapping[str, str],
    *,
    app: Application | None = None,
    further: Further | None = None,
    collects: bool = False,
) -> Config:
    """Raises ConfigErrors with everything that is wrong. `further` is called only if nothing else is wrong.

    A process that `collects` listens whatever the queue is. An application's declarations stand under the file. A `path` of None: there is no file.
    """
    document, declared = _read(path, environ, app=app)
    config = _Parts(document, declared).config(collects=collects)
    if config and further and not document.problems:
        for place, problem in further(config):
            document.refuse(place, problem)
    document.raise_if_refused()
    if config is None:
        raise AssertionError("a part without a value has noted no problem")
    return config


def load_needed(
    path: str | FilePath | None,
    environ: Mapping[str, str],
    needs: Collection[SectionName],
    *,
    if_there: Collection[SectionName] = (),
    app: Application | None = None,
) -> Config | Partly:
    """The whole configuration; or, of a file that is refused, the sections that a command needs, and those that it takes
    if they are there. Raises ConfigErrors."""
    document, declared = _read(path, environ, app=app)
    config = _Parts(document, declared).config(collects=False)
    return partly(document, needs, if_there) if config is None or document.problems else config


def _read(
    path: str | FilePath | None, environ: Mapping[str, str], *, app: Application | None
) -> tuple[Document, Mapping[str, Definition]]:
    """The document with the application's declarations, and those of them that the application's loaders load."""
    if path is None and app is None:
        raise AssertionError("there must be a file or an application")
    document = Document(str(app and app.name), []) if path is None else read_document(FilePath(path), environ)
    later.refuse_later(document)
    return document, put_under(document, app) if app else {}


class _Parts:
    """The sections of one document, typed and merged as far as they are well formed."""

    def __init__(self, document: Document, declared: Mapping[str, Definition]) -> None:
        self._document, self._declared = document, declared
        tree = document.tree
        self._top = self._typed(
            TopSection, {key: value for key, value in tree.items() if key not in TopSection.apart}, ()
        )
        self._defaults = self._typed(DefaultsSection, tree.get("defaults", {}), ("defaults",))
        self._sources = self._each(SourceSection, "sources")
        self._namespaces = self._each(NamespaceSection, "namespaces")

    def config(self, *, collects: bool) -> Config | None:
        """None when something was refused."""
        if self._top:
            checks.check_top(self._document, self._top, collects=collects)
        namespaces = self._merged()
        if self._top is None:
            return None
        top = self._top
        sources = {name: one for name, one in self._sources.items() if one}
        queue = queue_of(top.queue.url, top.queue.partitions)
        if not self._document.problems:
            warn_of_idle(self._document, sources, namespaces)
            warn_of_clear_text(self._document, sources, top.cache.url, queue)
        default = (CONVENTIONAL,) if collects or isinstance(queue, MemoryQueueConfig) else ()
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
            declared=self._declared,
            warnings=tuple(self._document.warnings),
        )

    def _typed(self, model: type[S], tree: Tree, path: Path) -> S | None:
        try:
            return model.model_validate(tree)
        except ValidationError as e:
            explain(self._document, model, e, path)
            return None

    def _each(self, model: type[N], section: str) -> dict[str, N | None]:
        """A section whose keys are names that the user chose; None for a malformed one."""
        tree = self._document.tree.get(section, {})
        if not self._document.names(section):
            self._document.refuse((section,), "must declare at least one, as `name: {…}`")
        if not isinstance(tree, dict):
            return {}
        checks.check_names(self._document, section, list(tree))
        typed = {name: self._typed(model, one, (section, name)) for name, one in tree.items()}
        return {name: one and one.called(name) for name, one in typed.items()}

    def _merged(self) -> dict[str, NamespaceSection]:
        document = self._document
        for name, source in self._sources.items():
            if source:
                checks.check_source(document, name, source)
                checks.check_encryption(document, name, source)
        tree = document.tree.get("defaults")
        if self._defaults:
            checks.check_refresh(document, ("defaults",), self._defaults.refresh, _policy(plain(tree)))
            checks.check_value(document, ("defaults",), self._defaults.value)
        found: dict[str, NamespaceSection] = {}
        for name, own in self._namespaces.items():
            if own is None:
                continue
            checks.check_value(document, ("namespaces", name), own.value)
            self._check_load(name, own.load)
            checks.check_statement(document, own, self._dialect(own.load.source))
            whole = self._whole(name, tree) if self._defaults else None
            if whole:
                found[name] = whole
                checks.check_refresh(document, ("namespaces", name), own.refresh, whole.refresh.policy)
                checks.check_merged(document, whole)
        sources = {name: one for name, one in self._sources.items() if one}
        check_feeds(document, sources, found)
        checks.check_overlap(document, {name: each.pattern for name, each in found.items()})
        return found

    def _whole(self, name: str, defaults: Tree | None) -> NamespaceSection | None:
        """The namespace, with the defaults of the settings that it lacks."""
        section = self._document.tree["namespaces"]
        own = section[name] if isinstance(section, dict) else None
        whole = self._typed(NamespaceSection, merged(own, defaults), ("namespaces", name))
        return whole and whole.called(name)

    def _dialect(self, name: str) -> Dialect:
        """The dialect of this source; PostgreSQL's if the source is malformed, which is reported elsewhere."""
        source = self._sources.get(name)
        return dialect_of(source.url.scheme.partition("+")[0] if source and source.url else "postgresql")

    def _check_load(self, name: str, load: LoadSection) -> None:
        checks.check_load(self._document, name, load, self._document.names("sources"))
        source = self._sources.get(load.source)
        if source:
            checks.check_source_url(self._document, name, load, source)


def _policy(section: Mapping[str, Tree]) -> object:
    """The policy of a section, without its defaults."""
    refresh = section["refresh"]
    return refresh.get("policy", "price") if isinstance(refresh, dict) else "price"
