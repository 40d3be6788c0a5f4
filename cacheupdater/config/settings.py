"""The configuration as the service reads it: final, typed, frozen values, with the defaults merged.

`load_config` builds one per process. Its sections are those of the file (`models`).
"""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import TYPE_CHECKING

from cacheupdater.config.queues import MemoryQueueConfig

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

    from cacheupdater.config.addresses import Address, TcpAddress, UnixAddress
    from cacheupdater.config.choices import LogKeys
    from cacheupdater.config.models import NamespaceSection, SourceSection
    from cacheupdater.config.problems import Problem
    from cacheupdater.config.queues import QueueConfig
    from cacheupdater.config.secrets import Url
    from cacheupdater_client.protocol.definitions import Definition


@dataclass(frozen=True, slots=True)
class Config:
    listen: tuple[Address, ...]  # at least one with a memory queue or in a collector
    queue: QueueConfig
    cache: Url
    admin: TcpAddress | UnixAddress | None  # UnixAddress: only a worker, whose parent collects its pages
    admin_token: str | None = field(repr=False)  # a client that has it may ask about keys
    state: str | None  # the file of what was learned
    log_keys: LogKeys  # how logs and pages name a key
    fleet: str | None  # updaters of one name share the rates of their sources
    sources: Mapping[str, SourceSection]
    namespaces: Mapping[str, NamespaceSection]
    # by namespace: values that an application declares, and that its own loaders load
    declared: Mapping[str, Definition] = field(default_factory=dict, compare=False)
    warnings: Sequence[Problem] = field(default=(), compare=False)  # of settings that do nothing

    @property
    def collects(self) -> bool:
        """Whether an updater has listeners of its own beside a queue that it shares: it collects their hints and forwards them."""
        return bool(self.listen) and not isinstance(self.queue, MemoryQueueConfig)

    @property
    def feeds(self) -> bool:
        """Whether any source tells its changes."""
        return any(each.changes for each in self.namespaces.values())

    @property
    def forwards(self) -> bool:
        """Whether an updater puts hints on a queue that it shares: those of its clients, or those of feeds."""
        return self.collects or (self.feeds and not isinstance(self.queue, MemoryQueueConfig))
