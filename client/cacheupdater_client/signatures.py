"""What `inspect.signature` says of our clients: redis-py's parameters with their defaults, then `emit` and `only`.

Our `__init__` hands all other arguments on. Seen from outside, it would take `*args` and `**options` only, and code that asks a
client's class for its parameters (redis-py's own tests, containers that inject dependencies) would find none. The clients call
this module when they are imported. It changes no call.
"""

from __future__ import annotations

import inspect
from inspect import Parameter
from typing import TYPE_CHECKING, TypeVar

if TYPE_CHECKING:
    from collections.abc import Callable

_Init = TypeVar("_Init", bound="Callable[..., None]")

_OURS = (
    Parameter("emit", Parameter.KEYWORD_ONLY, default="auto", annotation="str | None"),
    Parameter("only", Parameter.KEYWORD_ONLY, default=None, annotation="Sequence[str | bytes] | None"),
)


def like(plain: Callable[..., None]) -> Callable[[_Init], _Init]:
    """A decorator for the `__init__` that replaces redis-py's."""
    theirs = inspect.signature(plain)
    rest = [each for each in theirs.parameters.values() if each.kind is Parameter.VAR_KEYWORD]
    named = [each for each in theirs.parameters.values() if each.kind is not Parameter.VAR_KEYWORD]
    shown = theirs.replace(parameters=[*named, *_OURS, *rest])

    def mark(init: _Init) -> _Init:
        init.__signature__ = shown  # type: ignore[attr-defined]  # inspect reads it; functions do not declare it
        return init

    return mark
