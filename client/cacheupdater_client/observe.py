"""From commands to hints, the same for the sync and the asyncio client.

The clients call `returned` with each command and its reply, and `interrupted` when a command ended without a reply. A fault
in here must not reach the application, so each function that a client or a pipeline calls catches everything (`guard`).
`Emitting` has the methods of all clients that never wait, and `EmittingPipeline` marks our pipelines. The sync and the
asyncio classes add the methods that wait. `instrumented` calls the same functions for redis-py's own classes.
"""

from __future__ import annotations

import sys
from functools import cache
from typing import TYPE_CHECKING, Any, ClassVar, Protocol, TypeAlias

from redis.exceptions import CrossSlotTransactionError, ResponseError, WatchError

from cacheupdater_client.commands import cleared, hints_of, rule_of
from cacheupdater_client.guard import fault
from cacheupdater_client.protocol.wire import CHANGE

if TYPE_CHECKING:
    from collections.abc import Iterator, Sequence

    from cacheupdater_client.buffer import Append

Words: TypeAlias = "Sequence[object]"

LOST_RACE = "Watched variable changed."  # redis-py's words for an EXEC that Redis has answered with nil


class Hints(Protocol):
    """A Buffer, or Nowhere."""

    lease: Iterator[Append]

    def touch(self, key: object) -> None: ...
    def touch_all(self, keys: Sequence[bytes]) -> None: ...
    def miss(self, key: object) -> None: ...
    def fill(self, key: object, token: int) -> None: ...
    def awaited(self, key: object, token: int) -> None: ...
    def add(self, kind: int, key: object) -> None: ...
    def add_all(self, kind: int, keys: Sequence[object]) -> None: ...


class Nowhere:
    """The target of a client that emits nothing."""

    lease: Iterator[Append] = iter(())

    def add(self, kind: int, key: object) -> None: ...
    def add_all(self, kind: int, keys: Sequence[object]) -> None: ...
    def touch(self, key: object) -> None: ...
    def touch_all(self, keys: Sequence[bytes]) -> None: ...
    def miss(self, key: object) -> None: ...
    def fill(self, key: object, token: int) -> None: ...
    def awaited(self, key: object, token: int) -> None: ...


NOWHERE = Nowhere()


class Emitting:
    """A mixin before a client class of redis-py, whose methods `super()` finds."""

    _hints: Hints = NOWHERE
    _told: Hints = (
        NOWHERE  # where `instrument` sends this client's hints: nowhere, for the client sends them itself
    )
    _traced: bool = False  # whether the client's short ways, if it has any, are off: see Traceable
    _pipes: ClassVar[type]  # the class that the client's pipelines get
    get_encoder: Any  # redis-py's

    def emit_to(self, hints: Hints) -> None:
        """Hints go there from now on."""
        self._hints = hints
        self._told = NOWHERE  # if it was one of redis-py's before `wrap`, `instrument` knows it
        self._traced = self._traced  # on the object, where a look-up costs least

    def pipeline(self, *args: Any, **options: Any) -> Any:
        """As redis-py's; hints follow `execute()`."""
        plain: Any = super()
        pipe = plain.pipeline(*args, **options)
        try:
            pipe.__class__ = observed(pipe.__class__, self._pipes)
            pipe.observe_with(self._hints)
        except Exception:  # noqa: BLE001  the guard; a pipeline that stays what it was leaves no hints
            fault()
        return pipe

    def _changed(self, names: Sequence[bytes], *, kind: int = CHANGE) -> None:
        """Changes that the application has announced. `kind` is SET where the new values stand in Redis already."""
        try:
            self._hints.add_all(kind, names)
        except Exception:  # noqa: BLE001  the guard
            fault()


class Traceable:
    """A client whose short ways bypass its `execute_command`. A patch on the object turns them off, to see every command."""

    def __setattr__(self, name: str, value: object) -> None:
        if name == "execute_command":
            super().__setattr__("_traced", True)  # for ever: the short ways stay off after the patch
        super().__setattr__(name, value)


class EmittingPipeline:
    """A mixin before a pipeline class of redis-py. It remembers each command's position."""

    _hints: Hints = NOWHERE
    _queued: dict[int, Words]

    def observe_with(self, hints: Hints) -> None:
        """Hints go there from now on."""
        self._hints = hints
        self._queued = {}
        self._noted: object = None  # what `instrument` has noted so far: it was one of redis-py's until now


# --- a pipeline's commands: `pipe` is an EmittingPipeline, or one of redis-py's own with the same two attributes ---


def length_of(pipe: Any) -> int:
    """The number of queued commands; the largest number if a user's class does not tell."""
    try:
        return len(pipe)
    except Exception:  # noqa: BLE001  the guard
        fault()
        return sys.maxsize


def came(pipe: Any, at: int, words: Words, reply: object) -> None:
    """The pipeline has taken a command when it had `at` others: the command is queued now, or has run."""
    try:
        if length_of(pipe) > at:
            pipe._queued[at] = words  # noqa: SLF001  see above
        else:
            returned(pipe._hints, words, reply)  # noqa: SLF001  see above
    except Exception:  # noqa: BLE001  the guard
        fault()


def taken(pipe: Any) -> dict[int, Words]:
    """The commands that are about to run. Those beyond the pipeline's length were discarded."""
    try:
        queued, pipe._queued = pipe._queued, {}  # noqa: SLF001  see above
        length = length_of(pipe)
        return {at: words for at, words in queued.items() if at < length}
    except Exception:  # noqa: BLE001  the guard
        fault()
        return {}


def done(pipe: Any, queued: dict[int, Words], replies: object) -> None:
    """The pipeline was executed. If a user's class returns no replies, all that it may have written counts as changed."""
    hints: Hints = pipe._hints  # noqa: SLF001  see above
    try:
        if not isinstance(replies, (list, tuple)):
            for words in queued.values():
                interrupted(hints, words)
            return
        silent = cleared(queued, replies)
        for at, words in queued.items():
            if at < len(replies) and at not in silent:
                returned(hints, words, replies[at])
    except Exception:  # noqa: BLE001  the guard
        fault()


def failed(pipe: Any, queued: dict[int, Words], error: BaseException) -> None:
    """The pipeline ended with an error, and part of it may have been done."""
    try:
        if not _nothing_done(error):
            for words in queued.values():
                interrupted(pipe._hints, words)  # noqa: SLF001  see above
    except Exception:  # noqa: BLE001  the guard
        fault()


def _nothing_done(error: BaseException) -> bool:
    """Whether a transaction that ended with this error has certainly changed nothing.

    redis-py also raises WatchError if the connection was lost, perhaps after EXEC had run. Only the texts differ. If
    redis-py changes them, too many changes are announced, not too few.
    """
    if isinstance(error, WatchError):
        return str(error) == LOST_RACE
    return isinstance(error, CrossSlotTransactionError)


@cache
def observed(plain: type, ours: type) -> type:
    """The class that an object of redis-py gets. Our methods call the user's overrides, so these see every command."""
    return ours if plain in ours.__mro__ else type(f"Observed{plain.__name__}", (ours, plain), {})


def give_way(cls: type, quick: type, *, patched: bool = False) -> None:
    """Turns the short ways of `quick` off in a class with its own `execute_command`, so that this sees every command."""
    added = set(cls.__mro__) - set(quick.__mro__)
    if patched or any("execute_command" in vars(each) for each in added):
        plain: Any = super(quick, cls)
        for name in ("get", "hgetall"):
            if getattr(cls, name) is vars(quick)[name]:
                setattr(cls, name, getattr(plain, name))


def returned(hints: Hints, words: Words, reply: object) -> None:
    """The command has returned `reply`."""
    if hints is NOWHERE:
        return
    try:
        if not isinstance(reply, Exception):
            for kind, keys in hints_of(words, reply):
                hints.add_all(kind, keys)
        elif not isinstance(reply, ResponseError):  # a pipeline hands errors back as replies
            interrupted(hints, words)
    except Exception:  # noqa: BLE001  the guard
        fault()


def interrupted(hints: Hints, words: Words) -> None:
    """The command ended without a reply. Redis may have run it, so the keys that it writes count as changed."""
    try:
        rule = rule_of(words)
        if rule is not None and rule.writes:
            hints.add_all(CHANGE, rule.keys_of(words))
    except Exception:  # noqa: BLE001  the guard
        fault()
