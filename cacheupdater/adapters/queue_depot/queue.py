"""The queue on a depot: packs and ownership live in a database or a Redis that a team already has.

The service makes one `DepotQueue` and calls `start`, which waits for the depot. The first call of `assignments` makes this process
a member, so no process owns partitions on which it does not work. A crash loses nothing: after the end of its session, the next
owner reads again what was not finished.

Three tasks serve all partitions together, so that thousands of idle partitions cost next to nothing: one renews the session and
follows the roster (`ownership`), one reads (`reading`, `inbox`), and one commits (`commits`). A partition that is ours has no
task and no call of its own. The rules of who owns what are in `core.membership`. Our session counts by our own clock from before
a renewal was sent, and ends everything here that belongs to it. The depot relies on epochs alone.
"""

from __future__ import annotations

import asyncio
import logging
from contextlib import suppress
from itertools import islice
from typing import TYPE_CHECKING, TypeVar
from uuid import uuid4

from cacheupdater.adapters.queue_depot.commits import Commits
from cacheupdater.adapters.queue_depot.inbox import Inbox
from cacheupdater.adapters.queue_depot.ownership import Ownership
from cacheupdater.adapters.queue_depot.reading import Reading
from cacheupdater.adapters.queue_depot.waiting import answered
from cacheupdater.core.lanes import partition_of_lane
from cacheupdater.core.membership import Session
from cacheupdater.depot_ports import Claimed, TakesBack
from cacheupdater.errors import CacheUpdaterError, Stuck, Unavailable

if TYPE_CHECKING:
    from collections.abc import AsyncIterator, Callable, Collection, Coroutine, Mapping, Sequence

    from cacheupdater.core.lanes import Lane
    from cacheupdater.depot_ports import Depot, Progress
    from cacheupdater.ports import Assignment, Message, Observer, Troubles

T = TypeVar("T")

log = logging.getLogger(__name__)

SESSION = 5.0  # seconds: a takeover after a kill takes so long, and a process that is held up for longer loses its partitions
AGAIN = 0.5  # seconds until a failed start is tried again
OPEN_WITHIN = 30.0  # seconds; the first process makes the tables
COMMIT_WITHIN = 2.0  # seconds; a commit is tried again anyway, and a hand-over waits for it
COMMIT_PARTITIONS = 1000  # in one call
# In one call. Of a slow depot, thousands could never be claimed if one call had to claim all of them within half a session
CLAIM_PARTITIONS = 1000
TICK = 0.02  # seconds; a shorter wait at a session's end would only spin, and nothing answers in less
CLOSE_WITHIN = 3.0  # seconds to leave; if this hangs, the end of the session ends the membership


class DepotQueue:
    """`ports.Queue` on any depot."""

    def __init__(
        self,
        depot: Depot,
        *,
        session: float = SESSION,
        member: str | None = None,
        observer: Observer,
        notices: Troubles,
        clock: Callable[[], float] | None = None,
    ) -> None:
        """`member` is our name among those that share the depot, one for each start. `clock` is monotonic; the loop's if None."""
        self._depot = depot
        self._me = member or uuid4().hex
        self._session = Session(session)
        self._observer = observer
        self._notices = notices
        self._clock = clock or _loop_time
        self._woken = asyncio.Event()
        self._owned = Ownership(self._me, wake=self._woken.set)
        self._reading = Reading(depot, notices)
        self._commits = Commits(self._send)
        self._inboxes: dict[int, Inbox] = {}  # as the reader of `assignments` knows them
        self._members: frozenset[str] = frozenset()
        self._owners: Mapping[int, str] = {}
        self._tasks: list[asyncio.Task[None]] = []
        self._closed = asyncio.Event()
        self.partitions = 0
        """How many partitions the depot has. 0 until `start` has returned."""

    @property
    def joined(self) -> bool:
        """Whether our session runs, and this process has its share of the partitions, if there is one."""
        return self._session.runs(self._clock())

    def owner(self, partition: int) -> str | None:
        """The member that owned the partition when our session was last renewed."""
        return self._owners.get(partition)

    async def start(self) -> None:
        """Waits until the depot answers. It waits for ever: a caller with a time limit cancels it."""
        while not self.partitions and not self._closed.is_set():
            try:
                self.partitions = await answered(self._depot.open(), OPEN_WITHIN)
            except Unavailable as e:
                self._missing(e)
                await asyncio.sleep(AGAIN)
        self._notices.over("queue_missing", "")
        self._observer.level("partitions", self.partitions)

    async def assignments(self) -> AsyncIterator[Assignment]:
        """Becomes a member, and gives the changes of ownership until `close`.

        Raises the error if this process must end.
        """
        if not self._closed.is_set() and not self._tasks:
            work = (self._share(), self._reading.run(), self._commits.run())
            self._tasks = [asyncio.ensure_future(self._guarded(each)) for each in work]
        while not self._closed.is_set():
            change = await self._owned.changes.get()
            if change is None:
                return
            if isinstance(change, CacheUpdaterError):
                raise change
            self._announce(change)
            yield change

    async def fetch(self, partition: int, limit: int, held: Collection[int] = ()) -> Sequence[Message]:  # noqa: ARG002  a depot's packs are nobody's
        """The next 1 to `limit` packs of a partition that is ours; waits for the first. Empty once the queue is closed."""
        while not self._closed.is_set():
            inbox = self._inboxes.get(partition)
            if inbox is None:
                await self._closed.wait()
            elif inbox.unread and self._believes():
                taken = inbox.take(limit)  # nothing is taken before a wait, so a cancellation loses no packs
                self._reading.eased(inbox)
                return taken
            else:
                inbox.arrived.clear()
                await inbox.arrived.wait()
        return ()

    async def commit(self, partition: int, *, epoch: int, done: int, finished: Sequence[int] = ()) -> None:
        """Everything before `done` is finished, and the packs `finished`. A commit that the depot refuses is ignored."""
        inbox = self._inboxes.get(partition)
        if inbox is None or not inbox.accepts(epoch) or not self._believes():
            return
        if done > inbox.taken:
            raise ValueError(f"partition {partition}: done {done} is beyond what was fetched")
        if progress := inbox.progress(done, finished):
            await self._commits.add(progress)
            inbox.committed(progress, done, finished)

    @property
    def takes_back(self) -> bool:
        """As the port says. Streams of a Redis do not."""
        return isinstance(self._depot, TakesBack)

    async def put_back(self, partition: int, *, epoch: int, packs: Sequence[bytes]) -> range | None:
        """As the port says. After the end of our session another member may put the same back: a hint twice harms nothing."""
        inbox = self._inboxes.get(partition)
        if inbox is None or not inbox.accepts(epoch) or not self._believes():
            return None
        if not isinstance(self._depot, TakesBack):
            raise TypeError("this depot takes nothing back; ask `takes_back` first")
        return await answered(self._depot.put_back(partition, packs), COMMIT_WITHIN)

    def reassign(self, partitions: Collection[int]) -> None:
        """Hand these partitions over to ourselves, as far as they are ours. No other member notices."""
        self._owned.hand_over(partitions, back=True)

    async def close(self) -> None:
        """End every wait and leave, within `CLOSE_WITHIN` seconds: then other members may have our partitions at once."""
        if self._closed.is_set():
            return
        self._closed.set()
        self._session.end()
        self._owned.close()
        for inbox in self._inboxes.values():
            inbox.arrived.set()
        for task in self._tasks:
            task.cancel()
        await asyncio.gather(*self._tasks, return_exceptions=True)
        if self._tasks:
            with suppress(CacheUpdaterError):
                await answered(self._depot.leave(self._me), CLOSE_WITHIN)
        await self._depot.close()

    # --- tasks ------------------------------------------------------------------------------------------

    async def _guarded(self, work: Coroutine[None, None, None]) -> None:
        """Raises the error of a task from `assignments`: the other tasks would look healthy without it."""
        try:
            await work
        except CacheUpdaterError as e:
            self._owned.changes.put_nowait(e)
        except Exception as e:
            log.exception("the queue on the depot has failed unexpectedly")
            self._owned.changes.put_nowait(Stuck(f"the queue on the depot has failed: {e!r}"))

    async def _share(self) -> None:
        """Renew the session, and own what the roster says is ours."""
        while True:
            self._woken.clear()
            self._believes()
            try:
                await self._turn()
                self._notices.over("queue_missing", "")
            except Unavailable as e:
                self._missing(e)
            await self._wait(self._soon(self._session.every))

    async def _turn(self) -> None:
        owned, depot = self._owned, self._depot
        sent = self._clock()
        roster = await self._asked(depot.renew(self._me, self._session.length))
        self._session.renewed(sent)
        self._owners = roster.owners
        if roster.members != self._members:
            self._members = roster.members
            self._observer.count("rebalances", 1)
        if not self._believes():
            return
        claim = owned.follow(roster, self.partitions)
        if owned.free:
            released = owned.free.copy()
            await self._asked(depot.release(self._me, released))
            owned.released(released)
        if claim:
            gained = await self._asked(depot.claim(self._me, claim[:CLAIM_PARTITIONS]))
            if self._believes():  # otherwise the next roster shows what we have got
                owned.gain(gained)
            if claim[CLAIM_PARTITIONS:]:  # after the next renewal, at once
                self._woken.set()
        self._reading.share(sum(len(inbox.lanes) for inbox in owned.held.values()))

    async def _wait(self, seconds: float) -> None:
        """Waits for a wake-up, which a timer calls too. It raises no timeout, for that would cost time at every turn."""
        timer = asyncio.get_running_loop().call_later(seconds, self._woken.set)
        try:
            await self._woken.wait()
        finally:
            timer.cancel()

    # --- work -------------------------------------------------------------------------------------------

    async def _asked(self, call: Coroutine[None, None, T]) -> T:
        """The depot's answer. While our session runs, we wait for no answer beyond its end."""
        return await answered(call, self._soon(self._session.length / 2))

    def _soon(self, most: float) -> float:
        """The seconds until our session ends, or `most`."""
        left = self._session.until - self._clock()
        return min(most, max(left, TICK)) if left > 0.0 else most

    def _believes(self) -> bool:
        """Whether our session runs. If not, other members may own our partitions, so we give them up at once."""
        if self._session.runs(self._clock()):
            return True
        self._owned.lose_all()
        return False

    def _announce(self, change: Assignment) -> None:
        """The reader of `assignments` learns of this change now, so packs of a new epoch may be read and fetched."""
        for partition, epoch, offset in change.gained:
            inbox = self._owned.held.get(partition)
            if inbox is None or inbox.epoch != epoch:
                inbox = Inbox(
                    Claimed(partition, epoch, offset)
                )  # given up meanwhile, of which a later change tells
                inbox.open, inbox.leaving = False, True
            before, self._inboxes[partition] = self._inboxes.get(partition), inbox
            if before is not None:
                before.arrived.set()
            self._reading.add(inbox)

    async def _send(self, wanted: Mapping[Lane, Progress]) -> None:
        places = iter(wanted.items())
        while part := dict(islice(places, COMMIT_PARTITIONS)):
            try:
                refused = await answered(self._depot.commit(self._me, part), COMMIT_WITHIN)
            except Unavailable:
                self._observer.count("commit_failures", 1, reason="unavailable")
                raise
            lost = self._owned.refused({(partition_of_lane(lane), part[lane].epoch) for lane in refused})
            if lost:
                self._observer.count("commit_failures", lost, reason="rebalance")

    def _missing(self, error: Unavailable) -> None:
        self._notices.trouble("queue_missing", "", f"waiting for the depot of the queue: {error}")


def _loop_time() -> float:
    return asyncio.get_running_loop().time()
