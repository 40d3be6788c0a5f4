"""From commands to hints, the same for the sync and the asyncio client.

The clients call `returned` with each command and its reply, and `interrupted` when a command ended without one. A fault
in here must not reach the application, which is none the wiser whether its command was observed. `Emitting` is what
all clients do without waiting and `EmittingPipeline` what all pipelines do; each adds what it awaits, or does not.
"""

from __future__ import annotations

import logging
from functools import cache
from typing import TYPE_CHECKING, Any, ClassVar, Protocol, TypeAlias

from redis.exceptions import CrossSlotTransactionError, ResponseError, WatchError

from cacheupdater_client.commands import hints_of, rule_of
from cacheupdater_client.wire import CHANGE

if TYPE_CHECKING:
    from collections.abc import Iterator, Sequence

    from cacheupdater_client.buffer import Append

log = logging.getLogger("cacheupdater_client")

Words: TypeAlias = "Sequence[object]"

LOST_RACE = "Watched variable changed."  # redis-py's words for an EXEC that Redis has answered with nil


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


class Emitting:
    """Stands before a class of redis-py, whose methods are found above this one."""

    _hints: Hints = NOWHERE
    _pipes: ClassVar[type]  # what the client's pipelines become
    get_encoder: Any  # redis-py's

    def emit_to(self, hints: Hints) -> None:
        """Hints go there from now on."""
        self._hints = hints

    def pipeline(self, *args: Any, **options: Any) -> Any:
        """As redis-py's; hints follow `execute()`."""
        plain: Any = super()
        pipe = plain.pipeline(*args, **options)
        pipe.__class__ = observed(pipe.__class__, self._pipes)
        pipe.observe_with(self._hints)
        return pipe


class EmittingPipeline:
    """Stands before a pipeline class of redis-py, and remembers which command stands where."""

    _hints: Hints = NOWHERE
    _queued: dict[int, Words]

    def observe_with(self, hints: Hints) -> None:
        """Hints go there from now on."""
        self._hints = hints
        self._queued = {}

    def _taken(self) -> dict[int, Words]:
        """What is about to be executed. Beyond the pipeline's length stands what was discarded."""
        pipe: Any = self
        queued, self._queued = self._queued, {}
        return {at: words for at, words in queued.items() if at < len(pipe)}

    def _done(self, queued: dict[int, Words], replies: Sequence[object]) -> None:
        for at, words in queued.items():
            if at < len(replies):
                returned(self._hints, words, replies[at])

    def _failed(self, queued: dict[int, Words], error: BaseException) -> None:
        if not _nothing_done(error):
            for words in queued.values():
                interrupted(self._hints, words)


def _nothing_done(error: BaseException) -> bool:
    """Whether the transaction that ended so has surely changed nothing.

    redis-py raises WatchError also where the connection was lost, perhaps after EXEC had run. Only the words differ;
    should they change, too much is announced and not too little.
    """
    if isinstance(error, WatchError):
        return str(error) == LOST_RACE
    return isinstance(error, CrossSlotTransactionError)


@cache
def observed(plain: type, ours: type) -> type:
    """The class that an object of redis-py gets. The user's own overrides stay beneath ours and see every command."""
    return ours if plain in ours.__mro__ else type(f"Observed{plain.__name__}", (ours, plain), {})


def give_way(cls: type, quick: type) -> None:
    """Switches the short ways of `quick` off in a subclass with an `execute_command` of its own: it sees every command."""
    added = set(cls.__mro__) - set(quick.__mro__)
    if any("execute_command" in vars(each) for each in added):
        plain: Any = super(quick, cls)
        for name in ("get", "hgetall"):
            if getattr(cls, name) is vars(quick)[name]:
                setattr(cls, name, getattr(plain, name))


def returned(hints: Hints, words: Words, reply: object) -> None:
    """The command has returned `reply`."""
    if hints is NOWHERE:
        return
    if isinstance(reply, Exception):  # a pipeline hands errors back as replies
        if not isinstance(reply, ResponseError):
            interrupted(hints, words)
        return
    try:
        for kind, keys in hints_of(words, reply):
            hints.add_all(kind, keys)
    except Exception:
        log.debug("cannot observe a command; its hints are lost", exc_info=True)


def interrupted(hints: Hints, words: Words) -> None:
    """Redis may or may not have done it: what it would have written counts as changed."""
    try:
        rule = rule_of(words)
        if rule is not None and rule.writes:
            hints.add_all(CHANGE, rule.keys_of(words))
    except Exception:
        log.debug("cannot observe a command; its hints are lost", exc_info=True)
