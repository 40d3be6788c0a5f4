"""What an application has declared, as an updater reads it: `cacheupdater run --app shop.caching:cache`.

A `Cache`, sync or asyncio, is a `Defines`. The updater imports the application, asks the cache once for its `Definitions`, and
makes a namespace of each. So readers and updater load, spell and expire a value by one declaration. Nothing here does I/O.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from typing import TYPE_CHECKING, NamedTuple

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping, Sequence

    from cacheupdater_client.protocol.encoding import Encoding
    from cacheupdater_client.protocol.fence import Form
    from cacheupdater_client.protocol.patterns import Captures, Pattern
    from cacheupdater_client.protocol.spelling import Numbers, Times


class Place(NamedTuple):
    """Where something stands in the application's code."""

    file: str
    line: int  # from 1

    def __str__(self) -> str:
        return f"{self.file}:{self.line}"


class Spelling(NamedTuple):
    """How a value becomes bytes: `encode` does it, and the rest says how for people and for the fence."""

    encode: Callable[[object], bytes]  # Inexpressible for a value that it cannot take
    form: Form
    encoding: Encoding | None  # None: a codec of the application's own
    numbers: Numbers
    times: Times


class Definition(NamedTuple):
    """One declared value."""

    name: str  # the loader's qualified name
    pattern: Pattern
    place: Place
    source: str | None
    ttl_ms: int
    missing_ms: int
    timeout_ms: int
    fail_safe_ms: int | None  # beyond the ttl, while the source fails
    spelling: Spelling
    loader: Callable[..., object]
    batch: bool  # the loader takes a list of keys, and returns a mapping
    needs_object: bool  # the loader is a method, and only the application has the object
    needs_load: bool  # the application cannot load: the loader is a stub, and never called
    arguments: Callable[[Captures], Sequence[object]]  # of a loader of one key


class Definitions(NamedTuple):
    """All that one cache declares."""

    values: Sequence[Definition]
    sources: Mapping[str, str]  # budgets by name, such as {"shop": "500/s"}
    client: object  # of redis-py: it knows where Redis is
    place: Place  # of the cache


class Defines(ABC):
    """Base of the caches."""

    @abstractmethod
    def definitions(self) -> Definitions:
        """What has been declared so far."""
