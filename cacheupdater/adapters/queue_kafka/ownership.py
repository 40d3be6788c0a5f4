"""The ownership of partitions: turns the group's rebalances into the queue's assignments.

aiokafka's coordinator reports rebalances. The poller brings packs, and reports offsets that the broker no longer has. This
module turns both into inboxes, epochs and `Assignment`s. The queue makes one `Ownership` and keeps it for life.

Every rebalance takes all partitions, for aiokafka rebalances eagerly. The group waits while they are handed over. Until
`settled`, for at most `SETTLE` seconds, commits of the old epoch still count; then the epoch is over. If the group has removed
us, the epoch is over at once, for other updaters may own all partitions already. This module sets all positions, and aiokafka
sets none, so that no pack is skipped silently.
"""

from __future__ import annotations

import asyncio
import logging
from collections import deque
from typing import TYPE_CHECKING

from cacheupdater.adapters.queue_kafka import settings
from cacheupdater.adapters.queue_kafka.inboxes import Inbox
from cacheupdater.adapters.queue_kafka.placing import Start, start
from cacheupdater.errors import Misconfigured
from cacheupdater.ports import Assignment, Gained

if TYPE_CHECKING:
    from collections.abc import Collection, Mapping, Sequence

    from cacheupdater.adapters.queue_kafka.commits import Commits
    from cacheupdater.adapters.queue_kafka.member import Member
    from cacheupdater.adapters.queue_kafka.parcels import Parcel
    from cacheupdater.errors import CacheUpdaterError
    from cacheupdater.ports import Observer

log = logging.getLogger(__name__)

TIMES = 3  # see Impostors


class Ownership:
    """The ownership of one queue's partitions."""

    def __init__(self, member: Member, commits: Commits, *, observer: Observer) -> None:
        self.inboxes: dict[int, Inbox] = {}
        # At most two for each rebalance. No rebalance begins before the last one was settled or ran out of time.
        self.changes: asyncio.Queue[Assignment | CacheUpdaterError | None] = asyncio.Queue()
        self.joined = False  # the group has said which partitions are ours, if any
        self.round = 0  # rises with every step of the group, so that a method sees after a wait that the group has moved on
        self._member = member
        self._commits = commits
        self._observer = observer
        self._unplaced: tuple[int, ...] = ()
        self._begun_anew: set[int] = set()
        self._reassigned: set[int] = set()  # partitions that go to ourselves between two polls
        self._settling: set[asyncio.Event] = set()
        self._closed = False

    def inbox(self, partition: int) -> Inbox:
        """The inbox of this partition. It is kept for life, so that epochs never repeat."""
        return self.inboxes.setdefault(partition, Inbox())

    @property
    def open(self) -> list[int]:
        return [partition for partition, inbox in self.inboxes.items() if inbox.open]

    def close(self) -> None:
        """End every wait."""
        self._closed = True
        self.joined = False
        self.changes.put_nowait(None)
        for inbox in self.inboxes.values():
            inbox.arrived.set()
        for settled in self._settling:
            settled.set()

    def fail(self, error: CacheUpdaterError) -> None:
        """Raise this error from `assignments`: no other caller would notice it."""
        self.joined = False
        self.changes.put_nowait(error)

    def reassign(self, partitions: Collection[int]) -> None:
        """Hand these partitions over to ourselves: the poller does it, for a poll under way may hold packs of this epoch."""
        self._reassigned.update(partitions)

    # --- called for the group ---------------------------------------------------------------------------

    async def revoked(self) -> None:
        """All partitions are taken. The group waits for this process until this method returns."""
        self.round += 1
        self.joined = False
        self._unplaced = ()
        lost = self.open
        if self._member.forgotten:  # a group that has become empty would accept a commit from any process
            for partition in lost:
                self.inboxes[partition].over()
        if lost:
            log.info("a rebalance takes partitions %s", lost)
            await self._hand_over(lost)

    def assigned(self, partitions: Sequence[int]) -> None:
        """The rebalance has ended. The poller finds the offsets from which to read."""
        self.round += 1
        self._observer.count("rebalances", 1)
        self._unplaced = tuple(partitions)
        self.joined = not partitions

    # --- called by the poller ---------------------------------------------------------------------------

    async def settle_in(self) -> None:
        """Called between two polls. Finds the offsets of new partitions, and of those that may have begun anew.

        Raises Unavailable.
        """
        if self._unplaced:
            await self._place()
        if self._reassigned:
            await self._give_ourselves()
        if self._begun_anew:
            await self.find(self._member.led(self._begun_anew))

    def deliver(self, polled: Mapping[int, Sequence[Parcel]]) -> None:
        """Put the consumer's parcels into their inboxes."""
        for partition, parcels in polled.items():
            inbox = self.inbox(partition)
            if not inbox.open or not self.joined:
                continue  # the present owner reads them again
            for parcel in parcels:
                inbox.put(parcel)
            if inbox.full and not inbox.held:
                inbox.held = True
                self._member.pause(partition)

    def ease(self, partition: int) -> None:
        """Some of the partition's parcels were unpacked, so the consumer may read it again."""
        inbox = self.inboxes[partition]
        if inbox.held and inbox.roomy:
            inbox.held = False
            self._member.resume(partition)

    def again(self, partition: int) -> None:
        """Read the partition again from the last unpacked offset: the parcels could not be used."""
        inbox = self.inboxes[partition]
        inbox.next = inbox.unpacked
        self._member.seek(partition, inbox.next)

    async def back(self) -> None:
        """After an error, the consumer loses packs that it had read. Read those partitions again, and no others."""
        for partition in self.open:
            wanted = self.inboxes[partition].next
            if await self._member.position(partition) != wanted:
                self._member.seek(partition, wanted)

    async def find(self, partitions: Sequence[int]) -> None:
        """Find new offsets: the broker does not have ours any more, or a partition ends before its former end.

        Raises Unavailable.
        """
        asked = [partition for partition in partitions if self.inbox(partition).open]
        if not asked:
            return
        here, member = self.round, self._member
        firsts, ends, committed = await asyncio.gather(
            member.firsts(asked), member.ends(asked), member.committed(asked)
        )
        for partition in asked:
            inbox, first, end = self.inboxes[partition], firsts[partition], ends[partition]
            if here != self.round or not inbox.open:
                return
            suspected = partition in self._begun_anew
            self._begun_anew.discard(partition)
            # The commits of a topic are deleted with it. A log that was only cut by an election still has them.
            if inbox.next > end or (suspected and partition not in committed):
                await self._renew(partition, start(committed.get(partition), first=first, end=end).offset)
            else:
                self._go_to(partition, start(inbox.next if inbox.known else None, first=first, end=end))

    # --- called by the watch ----------------------------------------------------------------------------

    def ends_at(self, partition: int, end: int) -> None:
        """The partition's end, by a broker. An end goes back only if the topic was made again, or its log was cut."""
        inbox = self.inboxes[partition]
        if end < inbox.end and inbox.open:
            self._begun_anew.add(partition)
        inbox.end = end

    # --- steps ------------------------------------------------------------------------------------------

    async def _place(self) -> None:
        """Sends one request for all new partitions. Without a committed offset we try offset 0; if it is gone, `find` helps."""
        here, wanted = self.round, self._unplaced
        committed = await self._member.committed(wanted)
        if here != self.round:
            return
        self._unplaced = ()
        self.joined = True
        self._gain({partition: committed.get(partition) for partition in wanted})

    def _gain(self, places: Mapping[int, int | None]) -> None:
        gained = []
        for partition, committed in places.items():
            inbox = self.inbox(partition)
            inbox.begin(committed or 0, known=committed is not None)
            self._member.seek(partition, inbox.next)
            # Needed if a topic was made again under a full inbox, which was paused. After a rebalance nothing is paused.
            self._member.resume(partition)
            gained.append(Gained(partition, inbox.epoch, inbox.next))
        self.changes.put_nowait(Assignment(gained=tuple(gained), lost=(), settled=_nothing_to_settle))

    async def _renew(self, partition: int, offset: int) -> None:
        """The partition has begun anew: offsets of the old epoch mean nothing. The new epoch begins where a restart would."""
        inbox, here = self.inboxes[partition], self.round
        log.warning(
            "partition %d has begun anew: its topic was made again, or an election cut its log", partition
        )
        self._say_gone(partition, max(1, inbox.end - inbox.next), "reset")
        inbox.over()
        await self._hand_over([partition])
        if here == self.round:
            self._gain({partition: offset})

    async def _give_ourselves(self) -> None:
        """The new epoch begins where we have committed. If a rebalance has come before or meanwhile, the group decides."""
        lost, here = [each for each in self.open if each in self._reassigned], self.round
        self._reassigned.clear()
        if not lost or not self.joined:  # during a rebalance all partitions are handed over anyway
            return
        await self._hand_over(lost, back=True)
        if here == self.round:
            self._gain({each: self.inboxes[each].committed or None for each in lost})

    def _go_to(self, partition: int, found: Start) -> None:
        self._say_gone(partition, found.gone, found.reason)
        inbox = self.inboxes[partition]
        if found.offset != inbox.next:
            inbox.next = found.offset
            self._member.seek(partition, found.offset)

    async def _hand_over(self, lost: Sequence[int], *, back: bool = False) -> None:
        for partition in lost:
            self.inboxes[partition].quiet()
            self._begun_anew.discard(partition)
        settled = asyncio.Event()
        self._settling.add(settled)
        self._commits.hurry(on=True)
        self.changes.put_nowait(Assignment((), tuple(lost), settled.set, back))
        try:
            async with asyncio.timeout(0 if self._closed else settings.SETTLE):
                await settled.wait()
        except TimeoutError:
            log.warning("partitions %s were not handed over in %g s; going on", lost, settings.SETTLE)
        finally:
            self._commits.hurry(on=False)
            self._settling.discard(settled)
            for partition in lost:
                self.inboxes[partition].over()
                self._observer.end("lag", label=str(partition))  # another updater owns it by now

    def _say_gone(self, partition: int, gone: int, reason: str) -> None:
        if gone:
            log.warning(
                "partition %d: %d packs were gone before they were read (%s)", partition, gone, reason
            )
            self._observer.count("lost_packs", gone, reason=reason)


class Impostors:
    """Distinguishes another process with our static id from a session that has ended.

    The group has one member of a name: the process that joins last replaces the other. That one learns it by its next heartbeat,
    joins again and replaces the first. With aiokafka 0.14 this repeats for ever, and each process believes that it owns all
    partitions: aiokafka's heartbeats carry no instance id, so the broker says "unknown member". Only its answer to a join says
    "fenced", and `kafka_group` takes both for the same. A session that has ended by silence does not end again within the length
    of a session. A member that was held up through two rebalances is removed twice, so only a third removal is proof.
    """

    def __init__(self, instance: str | None, session: float) -> None:
        self._instance = instance
        self._session = session
        self._forgotten: deque[float] = deque(maxlen=TIMES)

    def look(self, now: float) -> None:
        """The group has removed us. Raises Misconfigured at the third time within a session."""
        self._forgotten.append(now)
        often = len(self._forgotten) == TIMES and now - self._forgotten[0] < self._session
        if self._instance is not None and often:
            raise Misconfigured(
                f"another process is a member of this group as instance {self._instance!r}; "
                "give each process an instance of its own"
            )


def _nothing_to_settle() -> None:
    """Gaining needs no hand-over."""
