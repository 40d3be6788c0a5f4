"""The work of a drain: takes packs from the old queue as a member of it, sends them to the new one, then commits them on the old.

`drain` makes one `Carrying` and awaits `run`. `core.draining` decides what is sent together, and what may be committed. `sending` is
the way to the new queue, for one wave at a time.

Tasks: one follows who owns which partition, one for each partition fetches, one sends, one commits. Nothing is committed before
the new queue has acknowledged it, so a drain that is killed loses nothing, and what it had under way arrives twice. While the new
queue is away, the wave waits, and nothing more is fetched than `core.draining` has room for.
"""

from __future__ import annotations

import asyncio
import logging
from contextlib import suppress
from typing import TYPE_CHECKING

from cacheupdater.core.draining import QUIET_S, Done, Draining
from cacheupdater.errors import Unavailable
from cacheupdater_client.protocol.wire import Malformed, decode_pack

if TYPE_CHECKING:
    from collections.abc import Collection

    from cacheupdater.collector.sending import Sending
    from cacheupdater.collector.shared_queue import SharedQueue
    from cacheupdater.pipeline.notices import Notices
    from cacheupdater.ports import Gained, Observer
    from cacheupdater_client.protocol.wire import Pack

log = logging.getLogger(__name__)

FETCH_PACKS = 96  # of all partitions at a time; each partition fetches at least one
AGAIN_S = 0.5  # seconds until a failed fetch or commit is tried again
REST_S = 0.5  # seconds between two turns of a link that has nothing to send: so it notices that its queue went away
LOOK_S = 1.0  # seconds between two looks at whether the old queue is drained
HELD_UP_S = 3 * LOOK_S  # longer between two looks: the process was held up, and has read nothing meanwhile
TELL_S = 10.0  # seconds between two lines of progress
HAND_OVER_S = 5.0  # seconds for the wave under way when partitions are lost or the drain is stopped
COMMIT_S = 2.0  # seconds for the commit after it; both leave time to close all connections


class Carrying:
    """Carries hints from one queue to another until nothing comes any more."""

    def __init__(
        self,
        queue: SharedQueue,
        sending: Sending,
        *,
        observer: Observer,
        notices: Notices,
        quiet_s: float = QUIET_S,
    ) -> None:
        """`queue` is the old one and has started; `sending` is the way to the new one."""
        self._queue = queue
        self._sending = sending
        self._observer = observer
        self._notices = notices
        self._quiet_s = quiet_s
        self._draining: Draining
        self._fetching: dict[int, asyncio.Task[None]] = {}
        self._room = asyncio.Event()
        self._came = asyncio.Event()
        self._rests = asyncio.Event()  # no wave is under way
        self._dirty = asyncio.Event()  # something may be committed
        self._closing = False
        self._told = 0  # hints, in the latest line of progress

    async def run(self, stop: asyncio.Event) -> bool:
        """Whether the old queue is drained. False: it was stopped before. Leaves the old queue in any case."""
        self._draining = Draining(_now(), quiet_s=self._quiet_s)
        self._room.set()
        self._rests.set()
        try:
            async with asyncio.TaskGroup() as group:
                group.create_task(self._follow(group))
                working = [group.create_task(self._send()), group.create_task(self._commit())]
                drained = await self._watch(stop)
                await self._end()
                for each in working:
                    each.cancel()
        finally:
            await self._queue.close()
        return drained

    async def _end(self) -> None:
        """Fetches no more, waits for the wave under way, and commits it."""
        self._closing = True
        for task in self._fetching.values():
            task.cancel()
        await self._rest()
        with suppress(TimeoutError):
            async with asyncio.timeout(COMMIT_S):
                await self._commit_all()
        await self._queue.close()

    async def _rest(self) -> None:
        """Waits for the wave under way, if it ends soon."""
        with suppress(TimeoutError):
            async with asyncio.timeout(HAND_OVER_S):
                await self._rests.wait()

    # --- the old queue ----------------------------------------------------------------------------------

    async def _follow(self, group: asyncio.TaskGroup) -> None:
        async for change in self._queue.assignments():
            if change.lost:
                await self._hand_over(change.lost)
            change.settled()
            if self._closing:
                continue
            for gained in change.gained:
                self._draining.gain(gained.partition, gained.epoch, gained.offset, now=_now())
                self._fetching[gained.partition] = group.create_task(self._fetch(gained))

    async def _hand_over(self, lost: Collection[int]) -> None:
        """The next owner shall read as little as possible again."""
        for partition in lost:
            if task := self._fetching.pop(partition, None):
                task.cancel()
        await self._rest()
        with suppress(TimeoutError):
            async with asyncio.timeout(COMMIT_S):
                await self._commit_all()
        for partition in lost:
            self._draining.lose(partition, now=_now())
        self._heed_room()

    async def _fetch(self, gained: Gained) -> None:
        """Reads one partition while it is ours."""
        subject = str(gained.partition)
        while True:
            await self._room.wait()
            limit = max(1, FETCH_PACKS // max(1, self._draining.owned))
            try:
                messages = await self._queue.fetch(gained.partition, limit)
            except Unavailable as e:
                self._notices.trouble("fetch_failed", subject, f"partition {subject} cannot be read: {e}")
                await asyncio.sleep(AGAIN_S)
                continue
            self._notices.over("fetch_failed", subject)
            if not messages:  # the queue is closed
                return
            for each in messages:
                at = Done(gained.partition, gained.epoch, each.offset)
                self._draining.read(at, self._decoded(each.payload), now=_now())
            self._heard()

    def _decoded(self, payload: bytes) -> Pack | None:
        """The pack, or None: updaters count such a pack and pass it too."""
        try:
            return decode_pack(payload)
        except Malformed as e:
            self._observer.count("intake_rejected", 1, reason=e.reason)
            return None

    def _heard(self) -> None:
        self._came.set()
        self._dirty.set()  # packs that nobody can read are finished already
        self._heed_room()

    def _heed_room(self) -> None:
        """Called whenever packs have come or gone."""
        if self._draining.has_room:
            self._room.set()
        else:
            self._room.clear()

    async def _commit(self) -> None:
        while True:
            await self._dirty.wait()
            self._dirty.clear()
            if not await self._commit_all():
                self._dirty.set()
                await asyncio.sleep(AGAIN_S)

    async def _commit_all(self) -> bool:
        """Whether the old queue has taken all commits."""
        taken = await asyncio.gather(*map(self._commit_one, self._draining.to_commit()))
        return all(taken)

    async def _commit_one(self, done: Done) -> bool:
        subject = str(done.partition)
        try:
            await self._queue.commit(done.partition, epoch=done.epoch, done=done.done)
        except Unavailable as e:
            text = f"what is drained of partition {subject} cannot be committed, tried again: {e}"
            self._notices.trouble("commit_failed", subject, text)
            return False
        self._notices.over("commit_failed", subject)
        self._draining.committed(done)
        return True

    # --- the new queue ----------------------------------------------------------------------------------

    async def _send(self) -> None:
        while True:
            self._came.clear()
            wave = None if self._closing else self._draining.next_wave()
            if wave is None:
                await self._sending.turn()
                with suppress(TimeoutError):
                    async with asyncio.timeout(REST_S):
                        await self._came.wait()
                continue
            self._rests.clear()
            await self._sending.carry(wave)
            self._draining.finish(wave)
            self._dirty.set()
            self._heed_room()
            self._rests.set()

    # --- the end ----------------------------------------------------------------------------------------

    async def _watch(self, stop: asyncio.Event) -> bool:
        """Whether nothing comes any more. False: `stop` was set."""
        draining, shares = self._draining, False
        told_at = looked_at = _now()
        while not stop.is_set():
            self._observer.level("waiting", draining.waiting)
            if self._knows_nothing(looked_at):
                draining.stir(_now())
            looked_at = _now()
            quiet = draining.quiet(_now())
            if quiet and draining.owned >= self._queue.partitions > 0:
                return True
            if quiet and not shares:
                log.info(
                    "nothing has come for %g s, but other members own %d of %d partitions: the drain goes on until they have left",
                    self._quiet_s,
                    self._queue.partitions - draining.owned,
                    self._queue.partitions,
                )
            shares = quiet
            told_at = self._tell(told_at)
            with suppress(TimeoutError):
                async with asyncio.timeout(LOOK_S):
                    await stop.wait()
        return False

    def _knows_nothing(self, looked_at: float) -> bool:
        """Whether packs may lie on the old queue that nobody here has had the chance to read.

        Time alone proves nothing: a frozen process finds at its next look that a minute has passed, and has read nothing in it.
        """
        return bool(self._notices.standing()) or not self._room.is_set() or _now() - looked_at > HELD_UP_S

    def _tell(self, told_at: float) -> float:
        """A line of progress, if there is any. Returns when the last one was logged."""
        total = sum(self._sending.drained.values())
        if _now() - told_at < TELL_S or total == self._told:
            return told_at
        self._told = total
        log.info("%s so far, %d under way", self._sending.sentence, self._draining.waiting)
        return _now()


def _now() -> float:
    return asyncio.get_running_loop().time()
