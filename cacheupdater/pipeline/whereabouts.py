"""Checks that applications use the Redis that we write: does it hold the keys that applications have just found or set?

`Vitals` makes one `Whereabouts` per process. An updater with the wrong database looks healthy: it fills that database with
copies that nobody reads, and from then on finds every key there that readers find. So only the first look at a key tells
anything. Each minute up to `ROUND` keys are looked at, before their loads can have written them: keys that came as touches, and
keys that an application has just set. An application with an empty cache sets each key that it reads. If most of these keys are
missing, applications use another server or database. If more keys hold values that this process did not write, it is the right
one. Any other result changes nothing, for keys expire or vanish between a read and a look. A key whose value was removed in this
Redis, as its floor shows, tells nothing.

The cost is at most `ROUND` keys a minute and `AT_ONCE` per pack, each with a TYPE and a GET. Nothing is written.
"""

from __future__ import annotations

import asyncio
from itertools import islice
from typing import TYPE_CHECKING

from cacheupdater.core.hints import Kind
from cacheupdater.errors import CacheUpdaterError

if TYPE_CHECKING:
    from cacheupdater.core.hints import Hints
    from cacheupdater.core.keyspace import Keyspace
    from cacheupdater.core.namespace import Namespace
    from cacheupdater.ports import Writer

ROUND = 200  # keys: enough to tell whether most are missing
ROUND_S = 60.0
AT_ONCE = 50  # keys of one pack: a hundred commands in one exchange
LEAST = 20  # keys that must agree before there is a result


class Whereabouts:
    """Whether the applications of a process' keys use another Redis."""

    def __init__(self, keyspace: Keyspace[Namespace]) -> None:
        self.elsewhere = False
        self.looked = self.absent = 0  # in this round
        self._keyspace = keyspace
        self._older = 0  # values that this process did not write
        self._known: set[bytes] = set()  # keys of this round
        self._round = -ROUND_S  # when the round began
        self._due: list[bytes] = []
        self._woken = asyncio.Event()

    def follow(self, keyspace: Keyspace[Namespace]) -> None:
        """The namespaces are others from now on."""
        self._keyspace = keyspace

    def hear(self, hints: Hints) -> None:
        """Called for every pack that is not late."""
        room = min(AT_ONCE, ROUND - len(self._known))
        if room <= 0 or not (hints.kind is Kind.TOUCH or hints.is_set):
            return
        fresh = dict.fromkeys(key for key in hints.keys if key not in self._known)
        groups, _ = self._keyspace.resolve_many(list(islice(fresh, room)))
        new = [key for known in groups.values() for key in known]
        if new:
            self._known.update(new)
            self._due += new
            self._woken.set()

    def tick(self, now: float) -> None:
        """Called once a second."""
        if now - self._round >= ROUND_S:
            self._round = now
            self._known.clear()
            self.looked = self.absent = self._older = 0

    async def run(self, writer: Writer) -> None:
        """Runs until cancelled. Other parts report a Redis in trouble."""
        clock = asyncio.get_running_loop().time
        began = clock()
        while True:
            await self._woken.wait()
            self._woken.clear()
            due, self._due = self._due, []
            try:
                found = await writer.look(due)
            except CacheUpdaterError:
                continue
            for each in found:
                if each is not None and not each.removed:
                    self.looked += 1
                    self.absent += not each.here
                    self._older += each.here and (each.age is None or each.age > clock() - began)
            self._judge()

    def _judge(self) -> None:
        if self.absent >= LEAST and 2 * self.absent > self.looked:
            self.elsewhere = True
        elif self._older >= LEAST and self._older > self.absent:
            self.elsewhere = False
