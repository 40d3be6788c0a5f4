"""The sections that an operator's command needs, of a file that is refused as a whole.

Somebody edits a namespace, the running updater refuses the file and goes on, and its operator must still reach it.
`load.load_needed` makes a `Partly` for one command. Its type has no sources and no settings of namespaces, so a command
that would need them cannot be given one.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Literal, TypeAlias

from cacheupdater.config import checks
from cacheupdater.config.models import AdminSection, CacheSection, QueueSection
from cacheupdater.config.problems import ConfigErrors
from cacheupdater.config.queues import queue_of

if TYPE_CHECKING:
    from collections.abc import Collection

    from cacheupdater.config.addresses import TcpAddress
    from cacheupdater.config.document import Document
    from cacheupdater.config.queues import QueueConfig
    from cacheupdater.config.secrets import Url

SectionName: TypeAlias = Literal["admin", "cache", "queue"]


@dataclass(frozen=True, slots=True)
class Partly:
    """A section that was not asked for must not be used."""

    errors: ConfigErrors  # why the file is refused
    taken: Collection[SectionName]
    namespaces: Collection[str]  # the names alone; a mistake may stand behind each of them
    admin: TcpAddress | None
    admin_token: str | None = field(repr=False)
    _cache: Url | None
    _queue: QueueConfig | None

    @property
    def names_all(self) -> bool:
        """Whether all names are known: the section `namespaces` stands in the file once, and is well formed."""
        return not any(problem.path == ("namespaces",) for problem in self.errors.problems)

    @property
    def cache(self) -> Url:
        assert self._cache is not None, "nobody asked for the section"
        return self._cache

    @property
    def queue(self) -> QueueConfig:
        assert self._queue is not None, "nobody asked for the section"
        return self._queue


def partly(
    document: Document, needs: Collection[SectionName], if_there: Collection[SectionName] = ()
) -> Partly:
    """Raises ConfigErrors, if one of these sections is wrong, or one that it `needs` is missing.

    The name of a missing one may be misspelt, so no default is taken. Of `if_there` the file may have none.
    """
    wrong = {problem.path[0] if problem.path else None for problem in document.problems}
    lacking = [f"`{each}`" for each in needs if each not in document.tree and each not in wrong]
    if lacking and None not in wrong:
        document.refuse((), f"this command needs {' and '.join(lacking)}, which the file does not have")
    there = [each for each in if_there if each in document.tree or each in wrong]
    taken = tuple(dict.fromkeys([*needs, *there]))
    # a mistake of the whole document, or another version of it, may give each section another meaning
    if None in wrong or any(each in wrong or each not in document.tree for each in ("version", *taken)):
        raise ConfigErrors(document.problems)
    tree = document.tree
    admin = AdminSection.model_validate(tree["admin"]) if "admin" in taken else None
    queue = QueueSection.model_validate(tree["queue"]) if "queue" in taken else None
    found = Partly(
        ConfigErrors(document.problems),
        taken,
        checks.names_of(document, "namespaces"),
        admin.listen if admin else None,
        checks.token_of(document, admin) if admin else None,
        CacheSection.model_validate(tree["cache"]).url if "cache" in taken else None,
        queue_of(queue.url, queue.partitions) if queue else None,
    )
    if queue:
        checks.check_queue(document, queue)
    if len(document.problems) > len(found.errors.problems):
        raise ConfigErrors(document.problems)
    return found
