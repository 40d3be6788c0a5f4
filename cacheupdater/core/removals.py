"""Keys that must leave Redis because a change of theirs is not loaded: giving up never leaves an old value.

The engine collects them, and the partition asks Redis to remove them. Their packs are not done before Redis has acknowledged.
Nothing is given up while Redis cannot be reached. Redis itself may refuse to remove a key: the user has no right to it, or
its floor holds another type. Such a key is given up in the end, with a count: it must not pin its pack for ever.
Each namespace has a rate for removals (`removing`). A removal that waits for its rate has not been tried, so this time counts
towards nothing. The number of removals has a cap. A socket's peer is not read any further before its removals reach the cap.
Nobody can make a topic's senders wait, so beyond the cap their removals run at once, with a count. Changed keys that nobody
reads (`fed`) have a pace of their own, which is far quicker, and this cap is not for them. A removal that is `only_ours` takes
only what a load of ours has written, and spares what the application has set (`drops`). Lives as long as its engine.
"""

from __future__ import annotations

from collections import deque
from dataclasses import dataclass, field
from itertools import repeat
from math import inf
from typing import TYPE_CHECKING

from cacheupdater.core.answers import Result

if TYPE_CHECKING:
    from collections.abc import Collection, Iterator, Sequence

    from cacheupdater.core.answers import Answer
    from cacheupdater.core.cursors import OpenPack
    from cacheupdater.core.limits import Limits
    from cacheupdater.core.metrics import Tally
    from cacheupdater.core.namespace import Namespace
    from cacheupdater.core.pace import Pace
    from cacheupdater.core.policy import Policy


# gone; or not ours to remove
_THROUGH = frozenset({Result.WRITTEN, Result.FOREIGN, Result.SPARED})
AGAIN = 0.5  # seconds before Redis is asked again to remove a key
REFUSALS_MAX = 5  # as many as the errors after which a key is quarantined
REFUSED_FOR = 30.0  # seconds of refusals, as long as a hint may wait; outages between them do not count


@dataclass(slots=True)
class Removal:
    """One key. Its pack stays open until the key is gone, or is given up."""

    key: bytes
    open_pack: OpenPack
    only_ours: bool = False  # a value that no load of ours has written stays
    refusals: int = 0
    refused_for: float = 0.0  # seconds


@dataclass(frozen=True, slots=True)
class Invalidation:
    """One request to Redis."""

    removals: list[Removal]
    asked: float

    @property
    def keys(self) -> list[bytes]:
        """In the order of the answers."""
        return [each.key for each in self.removals]

    @property
    def only_ours(self) -> Collection[bytes]:
        """Keys of which only what a load of ours has written is removed. A key that is asked for twice goes if either says so."""
        spared = {each.key for each in self.removals if each.only_ours}
        return spared.difference(each.key for each in self.removals if not each.only_ours)


@dataclass(slots=True, eq=False)
class _Line:
    """Removals of one namespace, in their order, until their pace lets them go."""

    namespace: Namespace
    unread: bool  # nobody reads these keys
    removals: deque[Removal] = field(default_factory=deque)

    @property
    def pace(self) -> Pace:
        return self.namespace.source.unread if self.unread else self.namespace.removing


class Removals:
    """The keys that Redis has been, or must be, asked to remove."""

    def __init__(self, limits: Limits, tally: Tally, *, policy: Policy) -> None:
        self.open = 0  # keys that Redis has not acknowledged
        self.waiting = 0  # those of them that the rate of dropped changes holds back
        self._most, self._senders_wait = limits.removals, limits.senders_wait
        self._tally = tally
        self._policy = policy
        self._lines: dict[tuple[Namespace, bool], _Line] = {}
        self._paid = -inf  # when the rate lets more of them go
        self._hastened = False
        self._asked: dict[bytes, int] = {}  # keys that are open, and how often
        self._later: deque[tuple[float, Removal]] = deque()  # when to ask again: in order, for all wait alike

    @property
    def wake(self) -> float:
        """When the next removal is asked for, or asked for again."""
        again = self._later[0][0] if self._later else inf
        return min(again, self._paid) if self._lines else again

    @property
    def full(self) -> bool:
        """Whether reading must stop: the sender of so many changes that cannot be served has to wait."""
        return self._senders_wait and self.waiting >= self._most

    def ask(
        self,
        namespace: Namespace,
        keys: Sequence[bytes],
        open_packs: Sequence[OpenPack],
        *,
        unread: bool = False,
        only_ours: bool = False,
    ) -> None:
        """These keys shall be removed as soon as their rate allows it. Their open packs are held already."""
        if not keys:
            return
        line = self._lines.setdefault((namespace, unread), _Line(namespace, unread))
        line.removals.extend(map(Removal, keys, open_packs, repeat(only_ours)))
        line.pace.join(line)
        self._paid = -inf
        self.open += len(keys)
        for key in keys:
            self._asked[key] = self._asked.get(key, 0) + 1
        if not unread:
            self.waiting += len(keys)
            for open_pack in open_packs:
                open_pack.peer.removals += 1

    def asked(self, key: bytes) -> bool:
        """Whether this key is to be removed."""
        return key in self._asked

    def resting(self) -> Iterator[Removal]:
        """Those that are not being asked for just now."""
        for line in self._lines.values():
            yield from line.removals
        for _, removal in self._later:
            yield removal

    def hasten(self) -> None:
        """From now on nothing waits: the partition is being handed over, and a removal that still waits would be lost."""
        self._hastened = True

    def leave(self) -> None:
        """The partition has gone."""
        for line in self._lines.values():
            line.pace.leave(line)

    def take(self, now: float) -> Invalidation | None:
        """The next request, if there is one. A removal that is asked for again has been paid."""
        taken: list[Removal] = []
        while self._later and self._later[0][0] <= now:
            taken.append(self._later.popleft()[1])
        if self._lines and (self._hastened or now >= self._paid or self._excess):
            self._paid = inf
            for line in list(self._lines.values()):
                taken += self._let_go(line, now)
        return Invalidation(taken, now) if taken else None

    @property
    def _excess(self) -> int:
        """How many dropped changes are too many to wait."""
        return 0 if self._senders_wait else max(0, self.waiting - self._most)

    def _let_go(self, line: _Line, now: float) -> list[Removal]:
        waiting, pace = line.removals, line.pace
        paid = min(pace.share(now), len(waiting))
        unpaid = min(self._beyond(line), len(waiting)) - paid
        if unpaid > 0:
            self._tally.add("removals_at_once", unpaid, line.namespace.name)
        gone = [waiting.popleft() for _ in range(max(paid, paid + unpaid))]
        if not line.unread:
            self.waiting -= len(gone)
            for removal in gone:
                removal.open_pack.peer.removals -= 1
        pace.take(len(gone) if unpaid <= 0 else paid, now)
        if waiting:
            self._paid = min(self._paid, pace.when(len(waiting), now))
        else:
            del self._lines[line.namespace, line.unread]
            pace.leave(line)
        return gone

    def _beyond(self, line: _Line) -> int:
        """How many of these must not wait any longer."""
        if self._hastened:
            return len(line.removals)
        return 0 if line.unread else self._excess

    def unanswered(self, invalidation: Invalidation, now: float) -> None:
        """Redis could not be reached: all of them are asked for again, as often as it takes."""
        self._later.extend((now + AGAIN, each) for each in invalidation.removals)

    def answered(self, invalidation: Invalidation, answers: Sequence[Answer], now: float) -> list[bytes]:
        """Each key is gone, asked for again, or given up. Returns the keys given up."""
        given_up, spared = [], []
        for removal, answer in zip(invalidation.removals, answers, strict=True):
            if answer.result in _THROUGH:
                self._close(removal)
                if answer.result is Result.SPARED:
                    spared.append(removal.key)
            elif answer.result is Result.FAILED and self._refused(removal, now - invalidation.asked):
                self._close(removal)
                given_up.append(removal.key)
            else:
                self._later.append((now + AGAIN, removal))
        if spared:
            self._policy.on_spared(spared)
        return given_up

    def _refused(self, removal: Removal, seconds: float) -> bool:
        """Whether this refusal was one too many."""
        removal.refusals += 1
        removal.refused_for += seconds + AGAIN
        return removal.refusals >= REFUSALS_MAX or removal.refused_for >= REFUSED_FOR

    def _close(self, removal: Removal) -> None:
        self.open -= 1
        left = self._asked.pop(removal.key) - 1
        if left:
            self._asked[removal.key] = left
        removal.open_pack.release(1)
