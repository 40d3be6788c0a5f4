"""How a loaded value becomes the pickle that a framework's cache holds: what `framework: {kind: django}` of a namespace means.

The updater asks `pickler` once per namespace, and calls its answer once per loaded key. Importing `encoding` does not load
this module. Nothing here reads a pickle: a pickle from Redis could run code.

Django's caches, cachelib (which is Flask-Caching's) and cashews leave integers as text, for INCR; aiocache and dogpile do
not. Everything else is a pickle.
Equal rows give equal bytes. A pickle says which of its objects are one and the same, and drivers share texts by chance.
So each text is made anew, except names of columns, which the rows of a list share as those of `QuerySet.values()` do. A
column that is called like a module or a class, such as `uuid`, shares its name with them there, and so it does here.
Types of database drivers become Python's own, or are refused: the application need not have the driver.
"""

from __future__ import annotations

import pickle
import re
import sys
from collections.abc import Mapping
from typing import TYPE_CHECKING
from uuid import UUID

from cacheupdater_client.protocol.encoding import VALUE_BYTES_MAX
from cacheupdater_client.protocol.errors import Inexpressible

if TYPE_CHECKING:
    from collections.abc import Callable

CACHELIB = b"!"
"""What cachelib puts before a pickle."""
_INTEGER = re.compile(rb"-?[0-9]+")
_INTEGER_BYTES_MAX = 1000  # as in the fence's scripts
_FAILURES = (pickle.PicklingError, TypeError, ValueError, AttributeError, RecursionError)
# their types mean nothing to a reader, who may not have the driver
_DRIVERS = frozenset(("aiomysql", "aiosqlite", "asyncmy", "asyncpg", "sqlalchemy"))
# names within pickles of Python's own types that a column may have too
_OWN_NAMES = "uuid UUID int decimal Decimal datetime date time timedelta timezone"
_NAMES = {name: sys.intern(name) for name in _OWN_NAMES.split()}


def pickler(protocol: int, before: bytes = b"", *, integers: bool = True) -> Callable[[object], bytes]:
    """The function that makes what a framework would write; it raises Inexpressible for values that it cannot pickle.

    `before` stands before each pickle. `integers`: they stay text.
    """

    def encoded(value: object) -> bytes:
        if integers and type(value) is int:
            return str(value).encode()
        try:
            spelled = before + pickle.dumps(_fresh(value, dict(_NAMES)), protocol)
        except _FAILURES as e:
            raise Inexpressible(f"pickle cannot express {_culprit(value)}") from e
        if len(spelled) > VALUE_BYTES_MAX:
            raise Inexpressible(
                f"the value takes {len(spelled)} bytes, more than the {VALUE_BYTES_MAX} that one key may hold"
            )
        return spelled

    return encoded


def is_pickle(value: bytes) -> bool:
    """Whether the bytes look like a pickle, as the fence's scripts see it: by the first bytes and the last."""
    return value[:1] == b"\x80" and b"\x02" <= value[1:2] <= b"\x05" and value[-1:] == b"."


def is_pickle_or_integer(value: bytes) -> bool:
    """Whether the bytes look like what frameworks write that put nothing before a pickle."""
    return is_pickle(value) or _is_integer(value)


def is_of_cachelib(value: bytes) -> bool:
    """Whether the bytes look like what cachelib writes."""
    return (value[:1] == CACHELIB and is_pickle(value[1:])) or _is_integer(value)


def _is_integer(value: bytes) -> bool:
    return len(value) <= _INTEGER_BYTES_MAX and _INTEGER.fullmatch(value) is not None


def _fresh(value: object, names: dict[str, str]) -> object:
    """The value with texts of its own. `names` are the names of columns so far."""
    if isinstance(value, str) and type(value) is str:
        return _text(value)
    if isinstance(value, Mapping) and (type(value) is dict or _of_driver(value)):
        return {
            names.setdefault(name, _text(name)) if type(name) is str else name: _fresh(part, names)
            for name, part in value.items()
        }
    if isinstance(value, list) and type(value) is list:
        return [_fresh(each, names) for each in value]
    if isinstance(value, tuple) and type(value) is tuple:
        return tuple(_fresh(each, names) for each in value)
    if isinstance(value, bytes) and type(value) is bytes:
        return bytes(bytearray(value))
    return _without_driver(value)


def _without_driver(value: object) -> object:
    if not _of_driver(value):
        return value
    if isinstance(value, UUID):
        return UUID(int=value.int)
    raise TypeError(f"{type(value).__name__} is a type of the driver")


def _of_driver(value: object) -> bool:
    return type(value).__module__.partition(".")[0] in _DRIVERS


def _text(value: str) -> str:
    return value.encode("utf-8", "surrogatepass").decode("utf-8", "surrogatepass")


def _culprit(value: object) -> str:
    """Which column it was: it fails alone, too."""
    if isinstance(value, Mapping):
        for name, part in value.items():
            try:
                pickle.dumps(_fresh(part, {}))
            except _FAILURES:
                return f"column {name!r}, of type {type(part).__name__}"
    return f"a value of type {type(value).__name__}"
