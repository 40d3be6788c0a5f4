"""What is ours: turns rosters, claims and refused commits into the queue's assignments.

The queue makes one `Ownership` and keeps it for life. Nothing here waits or talks to the depot: each method is told what the
depot has said, and the queue sends what is to be sent. A partition is ours from the answer to a claim until `settled`, in one
epoch and with one `Inbox`. There are two ways to lose a partition. By the plan: its commits count until it is handed over, and
then it is released. At once: the depot says that it is another's, or our session is over; then its commits are dropped here.
In both cases it is claimed again only after the hand-over, so no two engines of this process work on one partition.
"""

from __future__ import annotations

import asyncio
import logging
from functools import partial
from typing import TYPE_CHECKING

from cacheupdater.adapters.queue_depot.inbox import Inbox
from cacheupdater.core.membership import plan
from cacheupdater.ports import Assignment, Gained

if TYPE_CHECKING:
    from collections.abc import Callable, Collection, Iterable, Mapping, Sequence

    from cacheupdater.core.membership import Roster
    from cacheupdater.depot_ports import Claimed
    from cacheupdater.errors import CacheUpdaterError

log = logging.getLogger(__name__)

# Seconds that a hand-over may take: the supervisor's 5 s for the work and 1 s for tasks that resist, and the commit.
SETTLE = 8.0
_SHOWN = 10  # partitions that a log line names


class Ownership:
    """The ownership of one queue's partitions."""

    def __init__(self, me: str, *, wake: Callable[[], None]) -> None:
        """`wake` is called when there is something to release or to claim."""
        self.held: dict[int, Inbox] = {}  # ours, or not yet handed over
        self.free: dict[int, int] = {}  # epochs of partitions that are handed over, and not yet released
        # At most two for each inbox: it is gained once, and lost once.
        self.changes: asyncio.Queue[Assignment | CacheUpdaterError | None] = asyncio.Queue()
        self._me = me
        self._wake = wake
        self._timers: set[asyncio.TimerHandle] = set()

    def follow(self, roster: Roster, partitions: int) -> list[int]:
        """Lose and hand over what the roster says. Returns the partitions to claim now."""
        owners, me, held = roster.owners, self._me, self.held
        self.lose([each for each, inbox in held.items() if inbox.open and owners.get(each) != me])
        planned = plan(roster, me, partitions)
        self.hand_over(planned.release)
        # Ours by the depot, and not known here: the answer to a claim was lost, or we give ourselves the partition.
        strays = [each for each, owner in owners.items() if owner == me]
        return [each for each in (*planned.claim, *strays) if each not in held and each not in self.free]

    def gain(self, claimed: Sequence[Claimed]) -> None:
        """The depot has given us these partitions."""
        if not claimed:
            return
        inboxes = {each.partition: Inbox(each) for each in claimed}
        self.held |= inboxes
        gained = tuple(Gained(partition, inbox.epoch, inbox.taken) for partition, inbox in inboxes.items())
        self.changes.put_nowait(Assignment(gained=gained, lost=(), settled=_nothing_to_settle))

    def lose(self, partitions: Collection[int]) -> None:
        """These partitions may be another's already: their commits do not count any more."""
        if not partitions:
            return
        log.warning("partitions %s are lost: another member may own them", _named(partitions))
        for partition in partitions:
            self.held[partition].open = False
        self.hand_over(partitions)

    def lose_all(self) -> None:
        """Our session is over."""
        self.lose([each for each, inbox in self.held.items() if inbox.open])

    def refused(self, epochs: Iterable[tuple[int, int]]) -> int:
        """The depot has refused commits of these partitions and epochs. Returns how many of them were ours until now."""
        held = self.held
        lost = [
            partition for partition, epoch in epochs if partition in held and held[partition].accepts(epoch)
        ]
        self.lose(lost)
        return len(lost)

    def released(self, epochs: Mapping[int, int]) -> None:
        """The depot has released them."""
        for partition in epochs:
            del self.free[partition]

    def hand_over(self, partitions: Iterable[int], *, back: bool = False) -> None:
        """Give up those of these partitions that are ours and not given up yet; `back`: to have them again at once."""
        held = self.held
        lost = {each: held[each] for each in partitions if each in held and not held[each].leaving}
        if not lost:
            return
        for inbox in lost.values():
            inbox.leaving = True
            inbox.quiet()
        settled = partial(self._settled, lost, back=back)
        self.changes.put_nowait(Assignment((), tuple(lost), settled, back))
        self._timers = {each for each in self._timers if not each.cancelled()}
        self._timers.add(asyncio.get_running_loop().call_later(SETTLE, self._go_on, lost, settled))

    def close(self) -> None:
        """End every wait."""
        self.changes.put_nowait(None)
        for timer in self._timers:
            timer.cancel()
        for inbox in self.held.values():
            inbox.arrived.set()

    def _settled(self, lost: dict[int, Inbox], *, back: bool) -> None:
        """These partitions are handed over. Called a second time, it does nothing."""
        for partition, inbox in lost.items():
            if self.held.get(partition) is not inbox:
                continue
            del self.held[partition]
            if inbox.open and not back:
                self.free[partition] = inbox.epoch
        self._wake()

    def _go_on(self, lost: dict[int, Inbox], settled: Callable[[], None]) -> None:
        late = [partition for partition, inbox in lost.items() if self.held.get(partition) is inbox]
        if late:
            log.warning("partitions %s were not handed over in %g s; going on", _named(late), SETTLE)
            settled()


def _named(partitions: Collection[int]) -> str:
    more = len(partitions) - _SHOWN
    return ", ".join(map(str, sorted(partitions)[:_SHOWN])) + (f" and {more} more" if more > 0 else "")


def _nothing_to_settle() -> None:
    """Gaining needs no hand-over."""
