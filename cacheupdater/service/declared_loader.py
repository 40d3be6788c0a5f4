"""A declared loader as a function that `PythonLoader` can call: a list of keys in, a mapping out.

`components` makes one for each declared value. It calls the application's function as the client does: the same arguments, and
None for a row that does not exist. A loader of one key is called key by key, within the place of one statement, so that a
budget's `pool_size` bounds its connections too.
"""

from __future__ import annotations

import inspect
import sys
from collections.abc import Mapping
from typing import TYPE_CHECKING, cast

if TYPE_CHECKING:
    from collections.abc import Awaitable, Callable, Sequence

    from cacheupdater_client.protocol.definitions import Definition
    from cacheupdater_client.protocol.patterns import Capture, Captures

    Wanted = Sequence[Capture] | Sequence[Captures]


def function_of(value: Definition) -> Callable[[Wanted], object]:
    """The function, a coroutine function if the loader is one."""
    load = value.loader
    if inspect.iscoroutinefunction(inspect.unwrap(load)):

        async def waiting(wanted: Wanted) -> object:
            if value.batch:
                return _known(wanted, await cast("Awaitable[object]", load(wanted)))
            found = {}
            for key in wanted:
                found[key] = await cast("Awaitable[object]", load(*_arguments(value, key)))
            return _known(wanted, found)

        return waiting

    def called(wanted: Wanted) -> object:
        _tidy_connections()
        try:
            if value.batch:
                return _known(wanted, load(wanted))
            return _known(wanted, {key: load(*_arguments(value, key)) for key in wanted})
        finally:
            _tidy_connections()

    return called


def _arguments(value: Definition, key: Capture | Captures) -> Sequence[object]:
    return value.arguments(key if isinstance(key, tuple) else (key,))


def _known(wanted: Wanted, answer: object) -> object:
    """The answer for the keys that were asked for, as the client reads it. What is no mapping is refused elsewhere."""
    if not isinstance(answer, Mapping):
        return answer
    return {key: answer[key] for key in wanted if answer.get(key) is not None}


def _tidy_connections() -> None:
    """As Django does around a request: a thread must not keep a connection that has broken, or is too old."""
    django = sys.modules.get("django.db")
    if django is not None:
        django.close_old_connections()
