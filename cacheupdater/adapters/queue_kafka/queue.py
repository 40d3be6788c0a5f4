"""The queue of many machines: one topic of Kafka, one consumer group, one owner per partition at a time.

The service makes one `KafkaQueue` and calls `start`, which waits for the brokers and the topic. The first call of
`assignments` joins the group, so no process owns partitions on which it does not work. A crash loses nothing: the next owner
reads again what was not committed.

Inside, one poller moves parcels from the consumer to an inbox per partition (`inboxes`). `unpacking` opens the parcels when a
partition fetches packs, in bounded memory whatever they hold (`parcels`, `batches`, `codecs`, `messages`). `ownership` turns
rebalances into assignments and epochs. `commits` gathers the commits of all partitions. `watch` ends the process when the
consumer stands still although the brokers answer. `member` wraps aiokafka, and `settings` holds its settings. The queue
neither decodes packs nor retries work.
"""

from __future__ import annotations

import asyncio
import logging
from contextlib import suppress
from typing import TYPE_CHECKING

from cacheupdater.adapters.queue_kafka import settings
from cacheupdater.adapters.queue_kafka.commits import Commits, Done
from cacheupdater.adapters.queue_kafka.member import Denied, Member, MovedOn, OutOfRange
from cacheupdater.adapters.queue_kafka.ownership import Impostors, Ownership
from cacheupdater.adapters.queue_kafka.unpacking import Unpacking
from cacheupdater.adapters.queue_kafka.watch import Watch
from cacheupdater.errors import CacheUpdaterError, Stuck, Unavailable
from cacheupdater.kafka_group.settings import SESSION

if TYPE_CHECKING:
    from collections.abc import AsyncIterator, Collection, Coroutine, Mapping, Sequence

    from cacheupdater.adapters.queue_kafka.inboxes import Inbox
    from cacheupdater.ports import Assignment, Message, Observer, Troubles
    from cacheupdater_client.protocol.broker import Address

__all__ = ["KafkaQueue"]

log = logging.getLogger(__name__)

CROWDED_S = 0.02  # until the next try of a batch that found no room


class KafkaQueue:
    """`ports.Queue` on a consumer group."""

    def __init__(
        self,
        address: Address,
        *,
        group: str,
        session: float = SESSION,
        instance: str | None = None,
        observer: Observer,
        notices: Troubles,
    ) -> None:
        """`instance` makes this process a static member: when it restarts, its partitions wait for it for one session."""
        self._address = address
        self._session = session
        self._observer = observer
        self._notices = notices
        self._member = Member(address, group=group, session=session, instance=instance)
        self._commits = Commits(self._send)
        self._owned = Ownership(self._member, self._commits, observer=observer)
        self._watch = Watch(
            self._member,
            self._owned,
            topic=address.topic,
            session=session,
            observer=observer,
            notices=notices,
        )
        self._impostors = Impostors(instance, session)
        self._unpacking = Unpacking(observer=observer, notices=notices)
        self._tasks: list[asyncio.Task[None]] = []
        self._known_epochs: dict[int, int] = {}  # the epochs that the reader of `assignments` knows
        self._news = asyncio.Event()  # set when `_known_epochs` changes, then replaced
        self._closed = False

    @property
    def partitions(self) -> int:
        """How many partitions the topic has, as far as is known. The number may grow."""
        return self._watch.partitions

    @property
    def joined(self) -> bool:
        """Whether the group has assigned the partitions, and this process has its share."""
        return self._owned.joined

    async def start(self) -> None:
        """Waits until a broker answers and has the topic. It waits for ever: a caller with a time limit cancels it."""
        while not self._closed:
            try:
                why = await self._found_missing()
            except Unavailable as e:
                why = f"the brokers of {self._address}: {e}"
            if not why:
                self._notices.over("queue_missing", "")
                return
            self._notices.trouble("queue_missing", "", f"waiting for {why}")
            await asyncio.sleep(settings.AGAIN)

    async def assignments(self) -> AsyncIterator[Assignment]:
        """Joins the group, and gives the changes of ownership until `close`.

        Raises Stuck or Misconfigured if this process must end.
        """
        if not self._closed and not self._tasks:
            self._member.join(revoked=self._revoked, assigned=self._owned.assigned)
            self._tasks = [self._guarded(work) for work in (self._poll(), self._watch.run())]
        while not self._closed:
            change = await self._owned.changes.get()
            if change is None:
                return
            if isinstance(change, CacheUpdaterError):
                raise change
            self._known_epochs |= {gained.partition: gained.epoch for gained in change.gained}
            self._news.set()
            self._news = asyncio.Event()
            yield change

    async def fetch(self, partition: int, limit: int, held: Collection[int] = ()) -> Sequence[Message]:  # noqa: ARG002  a topic's packs are nobody's
        """The next 1 to `limit` packs; waits for the first. Empty once the queue is closed."""
        inbox = self._owned.inbox(partition)
        while not self._closed:  # nothing is taken in this loop, so a cancellation loses no packs
            # Packs of an epoch that the reader of `assignments` does not know yet are for a `Partition` that is not made yet.
            if inbox.epoch != self._known_epochs.get(partition):
                await self._news.wait()
            elif len(inbox.unread) < limit and inbox.parcels:
                if not await self._unpack(inbox, partition, limit):
                    break
            elif inbox.unread:
                break
            else:
                await inbox.arrived.wait()
        return () if self._closed else inbox.take(limit)

    async def _unpack(self, inbox: Inbox, partition: int, limit: int) -> bool:
        """Unpacks for one turn. False if there are no packs now but the unread ones."""
        sound = self._unpacking.some(inbox, partition, limit)
        self._owned.ease(partition)
        if inbox.crowded:
            if not inbox.unread:
                await asyncio.sleep(CROWDED_S)
            return not inbox.unread
        if sound:
            if inbox.parcels and len(inbox.unread) < limit:
                await asyncio.sleep(0)  # the next turn continues
            return True
        self._owned.again(partition)
        if not inbox.unread:
            raise Unavailable(f"a batch of partition {partition} is torn: its checksum is wrong")
        return False

    async def commit(
        self,
        partition: int,
        *,
        epoch: int,
        done: int,
        finished: Sequence[int] = (),  # noqa: ARG002  a group keeps one number per partition
    ) -> None:
        """Everything before `done` is finished. If the group does not accept the commit, the next owner reads the packs again."""
        inbox = self._owned.inbox(partition)
        if not inbox.open or epoch != inbox.epoch or done <= inbox.committed:
            return
        if done > inbox.taken:
            raise ValueError(f"partition {partition}: done {done} is beyond what was fetched")
        await self._commits.add(partition, Done(epoch, done))

    def reassign(self, partitions: Collection[int]) -> None:
        """Hand these partitions over to ourselves, as far as they are ours. The group does not notice."""
        self._owned.reassign(partitions)

    async def close(self) -> None:
        """End every wait and leave the group, within `CLOSE_WITHIN` seconds."""
        if self._closed:
            return
        self._closed = True
        self._news.set()
        self._owned.close()
        self._commits.close()
        for task in self._tasks:
            task.cancel()
        await asyncio.gather(*self._tasks, return_exceptions=True)
        await self._member.close()

    # --- tasks ------------------------------------------------------------------------------------------

    def _guarded(self, work: Coroutine[None, None, None]) -> asyncio.Task[None]:
        """Runs a task, and raises its error from `assignments`: the other tasks would look healthy without it."""

        async def guarded() -> None:
            try:
                await work
            except CacheUpdaterError as e:
                self._owned.fail(e)
            except Exception as e:
                log.exception("the Kafka queue has failed unexpectedly")
                self._owned.fail(Stuck(f"the Kafka queue has failed: {e!r}"))

        return asyncio.ensure_future(guarded())

    async def _poll(self) -> None:
        while True:
            try:
                await self._step()
                self._watch.trouble = None
                self._notices.over("fetch_failed", "")
            except Unavailable as e:
                self._complain(e)
                with suppress(Unavailable):
                    await self._owned.back()
                await asyncio.sleep(settings.AGAIN)
            await asyncio.sleep(0)  # a topic that always has packs must not starve the partitions

    async def _step(self) -> None:
        await self._owned.settle_in()
        try:
            polled = await self._member.poll()
        except OutOfRange as e:
            await self._owned.find(e.partitions)
        else:
            self._owned.deliver(polled)

    def _complain(self, error: Unavailable) -> None:
        """Report an error of the poller. The watch names it if it ends the process."""
        self._watch.trouble = error
        self._notices.trouble(
            "fetch_failed", "", f"{self._address} cannot be read and is tried again: {error}"
        )

    # --- work -------------------------------------------------------------------------------------------

    async def _found_missing(self) -> str:
        await self._member.connect()
        partitions = await self._member.partitions()
        if not partitions:
            return f"topic {self._address.topic} of {self._address}: it does not exist, or we may not see it"
        self._watch.count(partitions)
        return ""

    async def _revoked(self) -> None:
        if self._member.forgotten and self._owned.open:
            try:
                self._impostors.look(asyncio.get_running_loop().time())
            except CacheUpdaterError as e:
                self._owned.fail(e)
        await self._owned.revoked()

    async def _send(self, wanted: Mapping[int, Done]) -> None:
        inboxes = self._owned.inboxes
        live = {p: done for p, done in wanted.items() if inboxes[p].open and inboxes[p].epoch == done.epoch}
        if not live:
            return
        try:
            await self._member.commit({partition: done.offset for partition, done in live.items()})
        except MovedOn as e:
            log.info("a commit came too late, other updaters own its partitions: %s", e)
            self._observer.count("commit_failures", 1, reason="rebalance")
        except Unavailable as e:
            reason = "denied" if isinstance(e, Denied) else "unavailable"
            self._observer.count("commit_failures", 1, reason=reason)
            raise
        else:
            for partition, done in live.items():
                inboxes[partition].committed = done.offset
