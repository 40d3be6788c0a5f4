"""Searches Redis for an application's keys, for `cacheupdater check --connect`.

`side_by_side` makes one `Search`, and asks it for some keys of each namespace, or where they may be if there are none. It writes
nothing, and reads no values. What updaters keep for themselves does not count: an earlier `check --connect` leaves floors behind.
"""

from __future__ import annotations

import asyncio
from collections import Counter
from contextlib import suppress
from typing import TYPE_CHECKING, NamedTuple

from cacheupdater.config.queues import StreamsQueueConfig
from cacheupdater.config.units import printable
from cacheupdater.core.beginnings import beginning, likeness
from cacheupdater.core.keyspace import Keyspace
from cacheupdater.errors import Unavailable
from cacheupdater.redis_record import PREFIX
from cacheupdater_client.protocol.fence import is_beside
from cacheupdater_client.protocol.streams import is_key_of

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Sequence

    from cacheupdater.adapters.glance_redis import Glance
    from cacheupdater.config.queues import QueueConfig
    from cacheupdater_client.protocol.patterns import Pattern

_WHOSE = "does cache.url name the application's?"
EXAMPLES_MAX = 3  # keys that a note names
SAMPLE_MAX = 100_000  # keys that are looked at for examples: about as many as a second of searching meets
BEGINNINGS_MAX = 100  # of these keys, the commonest: each is compared with the pattern of each namespace
SHOWN_MAX = 60  # characters of a key in a sample; a longer one is cut
# of the keys that begin like a pattern: fewer may be the application's locks and lists, and are not worth a note
FEWEST, MANY = 3, 1 / 3
SEARCH_S = 1.0  # seconds for the keys of one namespace; in a large Redis a scan may meet none of them early


class Met(NamedTuple):
    """Keys that begin like a pattern, as far as the search went."""

    keys: Sequence[bytes]  # that fit the pattern
    nobodys: Sequence[bytes]  # that are of no namespace

    def misfits(self, pattern: Pattern) -> str:
        """A sentence about keys that no namespace takes; empty if they are few."""
        among = len(self.keys) + len(self.nobodys)
        if len(self.nobodys) < max(FEWEST, MANY * among):
            return ""
        return (
            f"{len(self.nobodys)} of the first {among} keys that begin like {_word(pattern.prefix)} fit no pattern, such as"
            f" {_short(self.nobodys[0])}: nobody refreshes these"
        )


class Search:
    """The keys of one Redis."""

    def __init__(self, glance: Glance, queue: QueueConfig, patterns: Iterable[Pattern]) -> None:
        """The streams of `queue` may lie in the same Redis. `patterns` are those of all namespaces."""
        self._glance = glance
        self._keyspace = Keyspace([(each, each) for each in patterns])
        self._nearby: dict[bytes, bytes | None] = {}  # a key of no namespace, by its beginning
        self._sample: Sequence[bytes] | None = None  # keys of no namespace, each with another beginning
        self._stream = queue.address.stream if isinstance(queue, StreamsQueueConfig) else None
        self._elsewhere: tuple[int, Sequence[int]] | None = None

    async def some(self, pattern: Pattern, most: int) -> Met:
        """Keys that begin like this pattern, until so many fit it. Redis may name a key twice."""
        keys: dict[bytes, None] = {}
        nobodys: dict[bytes, None] = {}
        with suppress(TimeoutError):
            async with asyncio.timeout(SEARCH_S):
                async for key in self._glance.keys(pattern.prefix):
                    if pattern.parse(key) is not None:
                        keys[key] = None
                    elif len(nobodys) < SAMPLE_MAX and self._is_nobodys(key):
                        nobodys[key] = None
                    if len(keys) >= most:
                        break
        return Met(list(keys), list(nobodys))

    async def lives(self, keys: Sequence[bytes]) -> Sequence[float | None]:
        """How many seconds these values live yet; None: for ever. Nothing if Redis does not say."""
        with suppress(Unavailable):
            return [await self._glance.ttl(key) for key in keys]
        return ()

    async def astray(self, pattern: Pattern) -> str:
        """Where the application's keys may be, if no key fits the pattern."""
        prefix = _word(pattern.prefix)
        key = await self._first(pattern.prefix)
        if key and key.startswith(pattern.prefix):
            return f"keys begin like {prefix}, and none fits {pattern.text}, such as {_word(key)}"
        if key:
            return (
                f"no key begins like {prefix}, but some hold it, such as {_word(key)}:"
                " does the application put a prefix before its keys?"
            )
        if self._elsewhere is None:  # it is the same for all namespaces
            self._elsewhere = await self._databases(self._is_the_applications)
        ours, others = self._elsewhere
        if others:
            here = await self._here(f" Database {ours}", pattern.prefix)
            return f"no key begins like {prefix} in database {ours}, and {_have(others)} keys: {_WHOSE}{here}"
        near = await self._near(pattern.prefix) or await self._here("; this database", pattern.prefix)
        return f"no key begins like {prefix} yet, so nothing was compared{near}"

    async def others_like(self, pattern: Pattern) -> str:
        """Which other databases of the server have keys with this beginning, in words; empty if none.

        Where all values are ours, the application's may be there: an updater fills the database that its file names.
        """
        prefix = pattern.prefix
        try:
            _, others = await self._databases(lambda key: key.startswith(prefix))
        except Unavailable:
            return ""
        return f"{_have(others)} keys that begin like {_word(prefix)}, too: {_WHOSE}" if others else ""

    async def _first(self, prefix: bytes) -> bytes | None:
        """A key that begins with this prefix; if there is none, a key that holds it."""
        held = None
        with suppress(TimeoutError, Unavailable):
            async with asyncio.timeout(SEARCH_S):
                async for key in self._glance.keys(prefix, within=True):
                    if key.startswith(prefix):
                        return key
                    held = held or (key if self._is_the_applications(key) else None)
        return held

    async def _near(self, prefix: bytes) -> str:
        """A clause about a key that begins like this prefix without its last word: maybe the pattern has a word too many."""
        begin, colon, _ = prefix.rstrip(b":").rpartition(b":")
        if begin and begin not in self._nearby:
            self._nearby[begin] = await self._nobodys(begin + colon)
        key = self._nearby.get(begin)
        return f"; some begin like {_word(begin)}:, such as {_word(key)}" if key else ""

    async def _here(self, where: str, prefix: bytes) -> str:
        """A clause about keys that are here, the most like this prefix first: maybe the pattern is misspelled."""
        if self._sample is None:  # it is the same for all namespaces
            self._sample = await self._sampled()
        shown = sorted(self._sample, key=lambda key: likeness(key, prefix), reverse=True)[:EXAMPLES_MAX]
        return f"{where} has keys such as {', '.join(map(_short, shown))}" if shown else ""

    async def _sampled(self) -> Sequence[bytes]:
        """Some keys of the application that are of no namespace, one for each beginning."""
        found: dict[bytes, bytes] = {}
        often: Counter[bytes] = Counter()
        looked = 0
        with suppress(TimeoutError, Unavailable):
            async with asyncio.timeout(SEARCH_S):
                async for key in self._glance.keys(b""):
                    looked += 1
                    if self._is_nobodys(key):
                        often[begin := beginning(key)] += 1
                        found.setdefault(begin, key)
                    if looked >= SAMPLE_MAX:
                        break
        return [found[begin] for begin, _ in often.most_common(BEGINNINGS_MAX)]

    async def _nobodys(self, begin: bytes) -> bytes | None:
        """A key of the application that begins like this and is of no namespace."""
        with suppress(TimeoutError, Unavailable):
            async with asyncio.timeout(SEARCH_S):
                async for key in self._glance.keys(begin):
                    if self._is_nobodys(key):
                        return key
        return None

    async def _databases(self, wanted: Callable[[bytes], bool]) -> tuple[int, Sequence[int]]:
        """The number of our database, and of those others in which a wanted key is found in time."""
        used: list[int] = []
        ours, others = await self._glance.databases()
        with suppress(TimeoutError, Unavailable):
            async with asyncio.timeout(SEARCH_S):
                for each in others:
                    used += [each] if await self._glance.holds(each, wanted) else []
        return ours, used

    def _is_nobodys(self, key: bytes) -> bool:
        """Whether it is a key of the application, and of no namespace."""
        pattern = self._keyspace.resolve(key)
        return self._is_the_applications(key) and not (pattern and pattern.takes(key))

    def _is_the_applications(self, key: bytes) -> bool:
        """Not a floor, not a record of fleets and feeds, not a stream of hints."""
        ours = is_beside(key) or key.startswith(PREFIX.encode())
        return not (ours or (self._stream is not None and is_key_of(self._stream, key)))


def _have(databases: Sequence[int]) -> str:
    numbers = ", ".join(map(str, databases))
    return f"database {numbers} has" if len(databases) == 1 else f"databases {numbers} have"


def _short(key: bytes) -> str:
    text = printable(_word(key[: 4 * SHOWN_MAX]))
    return text if len(text) <= SHOWN_MAX else f"{text[:SHOWN_MAX]}…"


def _word(key: bytes) -> str:
    return key.decode(errors="replace")
