"""Who reads without hints: the state behind `no_emit()`, which `calls` has.

A context variable says which `no_emit` this thread or task is within. `Buffer` asks here in its slow way only. While anybody
in the process is within one, no buffer hands out places in advance, so every hint takes the slow way. At all other times the check
costs a read nothing. Nothing here takes a lock: a set's `add` and `discard` are single steps.
"""

from __future__ import annotations

import os
from contextvars import ContextVar

_here: ContextVar[object] = ContextVar("quiet", default=None)
inside: set[object] = set()  # one object for each `no_emit` that has begun and has not ended


def is_quiet() -> bool:
    """Whether reads leave no hints now, in this thread or task. A task that outlives its `no_emit` leaves hints again."""
    return _here.get() in inside


def enter() -> tuple[object, object]:
    """From now on reads of this context leave no hints. Returns what `leave` needs."""
    before, mark = _here.get(), object()
    inside.add(mark)
    _here.set(mark)
    return before, mark


def leave(before: object, mark: object) -> None:
    """Ends what `enter` began."""
    _here.set(before)
    inside.discard(mark)


def _keep_own() -> None:
    """In a forked child: the other threads that were within stayed in the parent."""
    inside.intersection_update({_here.get()})


if hasattr(os, "register_at_fork"):
    os.register_at_fork(after_in_child=_keep_own)
