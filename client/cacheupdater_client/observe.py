"""From commands to hints, the same for the sync and the asyncio client.

The clients call `returned` with each command and its reply, and `interrupted` when a command ended without one. A fault
in here must not reach the application, which is none the wiser whether its command was observed.
"""

from __future__ import annotations

import logging
from typing import TYPE_CHECKING, Protocol, TypeAlias

from redis.exceptions import ResponseError

from cacheupdater_client.commands import hints_of, rule_of
from cacheupdater_client.wire import CHANGE

if TYPE_CHECKING:
    from collections.abc import Iterator, Sequence

    from cacheupdater_client.buffer import Append

log = logging.getLogger("cacheupdater_client")

Words: TypeAlias = "Sequence[object]"


class Hints(Protocol):
    """A Buffer, or Nowhere."""

    lease: Iterator[Append]

    def touch(self, key: object) -> None: ...
    def miss(self, key: object) -> None: ...
    def add(self, kind: int, key: object) -> None: ...
    def add_all(self, kind: int, keys: Sequence[object]) -> None: ...


class Nowhere:
    """Where the hints of a client go that emits nothing."""

    lease: Iterator[Append] = iter(())

    def add(self, kind: int, key: object) -> None: ...
    def add_all(self, kind: int, keys: Sequence[object]) -> None: ...
    def touch(self, key: object) -> None: ...
    def miss(self, key: object) -> None: ...


NOWHERE = Nowhere()


def returned(hints: Hints, words: Words, reply: object) -> None:
    """The command has returned `reply`."""
    if hints is NOWHERE or isinstance(reply, ResponseError):  # a pipeline hands errors back as replies
        return
    try:
        for kind, keys in hints_of(words, reply):
            hints.add_all(kind, keys)
    except Exception:
        log.debug("cannot observe a command; its hints are lost", exc_info=True)


def interrupted(hints: Hints, words: Words) -> None:
    """Redis may or may not have done it: what it would have written counts as changed."""
    try:
        rule = rule_of(words[0])
        if rule is not None and rule.writes:
            hints.add_all(CHANGE, rule.keys_of(words))
    except Exception:
        log.debug("cannot observe a command; its hints are lost", exc_info=True)
