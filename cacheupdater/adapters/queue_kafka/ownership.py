"""Who owns which partition: from the group's rebalances to the queue's assignments.

aiokafka's coordinator tells of rebalances, the poller brings packs and finds places that the broker no longer has; here they
become lanes, epochs and `Assignment`s. The queue makes one and keeps it for life.

Every rebalance takes all partitions (aiokafka rebalances eagerly). The group waits for us while they are handed over: until
`settled`, at the most `SETTLE` seconds, commits of the old epoch still count; then the epoch is over. If the group has forgotten us
it is over at once, for others may own everything already. Positions are set here and never by aiokafka, so that a
pack is never passed silently.
"""

from __future__ import annotations

import asyncio
import logging
from collections import deque
from typing import TYPE_CHECKING

from cacheupdater.adapters.queue_kafka import settings
from cacheupdater.adapters.queue_kafka.lanes import Lane
from cacheupdater.adapters.queue_kafka.placing import Start, start
from cacheupdater.errors import Misconfigured
from cacheupdater.ports import Assignment, Gained

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

    from cacheupdater.adapters.queue_kafka.commits import Commits
    from cacheupdater.adapters.queue_kafka.member import Member
    from cacheupdater.adapters.queue_kafka.parcels import Parcel
    from cacheupdater.errors import CacheUpdaterError
    from cacheupdater.ports import Observer

log = logging.getLogger(__name__)

TIMES = 3  # see Impostors


class Ownership:
    """The partitions of one queue."""

    def __init__(self, member: Member, commits: Commits, *, observer: Observer) -> None:
        self.lanes: dict[int, Lane] = {}
        # Two at the most for each rebalance, and none begins before the last one was settled or had its time.
        self.changes: asyncio.Queue[Assignment | CacheUpdaterError | None] = asyncio.Queue()
        self.joined = False  # we know what is ours, be it nothing
        self.round = 0  # rises with every step of the group, so that whoever waited sees that it went on
        self._member = member
        self._commits = commits
        self._observer = observer
        self._unplaced: tuple[int, ...] = ()
        self._begun_anew: set[int] = set()
        self._settling: set[asyncio.Event] = set()
        self._closed = False

    def lane(self, partition: int) -> Lane:
        """For life: epochs never repeat."""
        return self.lanes.setdefault(partition, Lane())

    @property
    def open(self) -> list[int]:
        return [partition for partition, lane in self.lanes.items() if lane.open]

    def close(self) -> None:
        """End every wait."""
        self._closed = True
        self.joined = False
        self.changes.put_nowait(None)
        for lane in self.lanes.values():
            lane.arrived.set()
        for settled in self._settling:
            settled.set()

    def fail(self, error: CacheUpdaterError) -> None:
        """Whoever follows the assignments is told, for nobody else would notice."""
        self.joined = False
        self.changes.put_nowait(error)

    # --- told by the group ------------------------------------------------------------------------------

    async def revoked(self) -> None:
        """All partitions are taken; the group waits for us until this returns."""
        self.round += 1
        self.joined = False
        self._unplaced = ()
        lost = self.open
        if self._member.forgotten:  # a group that is empty by now would take a commit from anybody
            for partition in lost:
                self.lanes[partition].over()
        if lost:
            log.info("a rebalance takes partitions %s", lost)
            await self._hand_over(lost)

    def assigned(self, partitions: Sequence[int]) -> None:
        """The rebalance has ended; the poller finds out where to read from."""
        self.round += 1
        self._observer.count("rebalances", 1)
        self._unplaced = tuple(partitions)
        self.joined = not partitions

    # --- told by the poller -----------------------------------------------------------------------------

    async def settle_in(self) -> None:
        """Between two polls: find the places of what we have just got, and of what looks as if it had begun anew. Raises Unavailable."""
        if self._unplaced:
            await self._place()
        if self._begun_anew:
            await self.find(self._member.led(self._begun_anew))

    def deliver(self, polled: Mapping[int, Sequence[Parcel]]) -> None:
        """From the consumer."""
        for partition, parcels in polled.items():
            lane = self.lane(partition)
            if not lane.open or not self.joined:
                continue  # it will be read again by whoever owns it
            for parcel in parcels:
                lane.put(parcel)
            if lane.full and not lane.held:
                lane.held = True
                self._member.pause(partition)

    def ease(self, partition: int) -> None:
        """Some of it was unpacked."""
        lane = self.lanes[partition]
        if lane.held and lane.roomy:
            lane.held = False
            self._member.resume(partition)

    def again(self, partition: int) -> None:
        """What the consumer has read could not be used: from where it was unpacked."""
        lane = self.lanes[partition]
        lane.next = lane.unpacked
        self._member.seek(partition, lane.next)

    async def back(self) -> None:
        """An error of the consumer swallows what it had read beside it: read that again, and leave the others alone."""
        for partition in self.open:
            wanted = self.lanes[partition].next
            if await self._member.position(partition) != wanted:
                self._member.seek(partition, wanted)

    async def find(self, partitions: Sequence[int]) -> None:
        """The broker does not have the places where we read, or its partition ends before where it has ended. Raises Unavailable."""
        asked = [partition for partition in partitions if self.lane(partition).open]
        if not asked:
            return
        here, member = self.round, self._member
        firsts, ends, committed = await asyncio.gather(
            member.firsts(asked), member.ends(asked), member.committed(asked)
        )
        for partition in asked:
            lane, first, end = self.lanes[partition], firsts[partition], ends[partition]
            if here != self.round or not lane.open:
                return
            suspected = partition in self._begun_anew
            self._begun_anew.discard(partition)
            # With a topic its commits are deleted. A log that was only cut by an election has them still.
            if lane.next > end or (suspected and partition not in committed):
                await self._renew(partition, start(committed.get(partition), first=first, end=end).offset)
            else:
                self._go_to(partition, start(lane.next if lane.known else None, first=first, end=end))

    # --- told by the watch ------------------------------------------------------------------------------

    def ends_at(self, partition: int, end: int) -> None:
        """What a broker says. An end never goes back, but for a topic that was made anew, or a log that was cut."""
        lane = self.lanes[partition]
        if end < lane.end and lane.open:
            self._begun_anew.add(partition)
        lane.end = end

    # --- steps ------------------------------------------------------------------------------------------

    async def _place(self) -> None:
        """One question for all: where no place was committed we try the very first, and `find` helps where that is gone."""
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
            lane = self.lane(partition)
            lane.begin(committed or 0, known=committed is not None)
            self._member.seek(partition, lane.next)
            # After a rebalance it is read anyway. Where a topic was made anew under a full lane, it was held back.
            self._member.resume(partition)
            gained.append(Gained(partition, lane.epoch, lane.next))
        self.changes.put_nowait(Assignment(gained=tuple(gained), lost=(), settled=_nothing_to_settle))

    async def _renew(self, partition: int, offset: int) -> None:
        """No place of the old epoch means anything any more; the new one begins where a restart would."""
        lane, here = self.lanes[partition], self.round
        log.warning(
            "partition %d has begun anew: its topic was made again, or an election cut its log", partition
        )
        self._say_gone(partition, max(1, lane.end - lane.next), "reset")
        lane.over()
        await self._hand_over([partition])
        if here == self.round:
            self._gain({partition: offset})

    def _go_to(self, partition: int, found: Start) -> None:
        self._say_gone(partition, found.gone, found.reason)
        lane = self.lanes[partition]
        if found.offset != lane.next:
            lane.next = found.offset
            self._member.seek(partition, found.offset)

    async def _hand_over(self, lost: Sequence[int]) -> None:
        for partition in lost:
            self.lanes[partition].quiet()
            self._begun_anew.discard(partition)
        settled = asyncio.Event()
        self._settling.add(settled)
        self._commits.hurry(on=True)
        self.changes.put_nowait(Assignment(gained=(), lost=tuple(lost), settled=settled.set))
        try:
            async with asyncio.timeout(0 if self._closed else settings.SETTLE):
                await settled.wait()
        except TimeoutError:
            log.warning("partitions %s were not handed over in %g s; going on", lost, settings.SETTLE)
        finally:
            self._commits.hurry(on=False)
            self._settling.discard(settled)
            for partition in lost:
                self.lanes[partition].over()
                self._observer.level("lag", 0, label=str(partition))  # another updater's by now

    def _say_gone(self, partition: int, gone: int, reason: str) -> None:
        if gone:
            log.warning(
                "partition %d: %d packs were gone before they were read (%s)", partition, gone, reason
            )
            self._observer.count("lost_packs", gone, reason=reason)


class Impostors:
    """Tells a process that uses our static id from a session that has ended.

    The group knows one member of a name: whoever joins last replaces the other, who learns it with its next heartbeat, joins
    again and replaces the first. aiokafka 0.14 repeats that for ever (its heartbeats carry no instance id, so that the
    broker says "unknown member" and never "fenced"), and each believes that it owns everything. A session that
    ended by silence does not end again within a session's length; a member that was held up through two rebalances is
    forgotten twice, so it takes a third time.
    """

    def __init__(self, instance: str | None, session: float) -> None:
        self._instance = instance
        self._session = session
        self._forgotten: deque[float] = deque(maxlen=TIMES)

    def look(self, now: float) -> None:
        """The group has forgotten us. Raises Misconfigured the third time within a session."""
        self._forgotten.append(now)
        often = len(self._forgotten) == TIMES and now - self._forgotten[0] < self._session
        if self._instance is not None and often:
            raise Misconfigured(
                f"another process is a member of this group as instance {self._instance!r}; "
                "give each process an instance of its own"
            )


def _nothing_to_settle() -> None:
    """Gaining needs no hand-over."""
